"""Several server processes on one port: `twophase server --workers N`.

Each worker is a whole server and a node of the shared store; the kernel spreads connections over them (SO_REUSEPORT).
`supervisor` starts and ends them, `assignment` is what a worker gets from it, `metrics` makes one scrape of all.
"""
