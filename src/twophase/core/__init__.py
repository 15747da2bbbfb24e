"""The protocol, pure: no I/O, no third-party import but msgspec, and time and chance only where `hooks` and `gid` offer
them to whoever composes a program.
"""
