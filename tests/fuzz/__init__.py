"""What nobody should send, sent: to a real server process, and to the parsers behind it.

`make test` plays a few examples of each target; `make fuzz` plays them for as long as it is told, and writes
docs/fuzz-report.md.
"""
