"""Input that no client should send, to a real server process and to its parsers.

`make test` plays a few examples of each target; `make fuzz` plays them for the time that it is given, and writes
docs/fuzz-report.md.
"""
