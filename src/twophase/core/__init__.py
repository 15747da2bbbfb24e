"""The protocol, pure: no I/O, and no third-party import but msgspec.

Time and chance come only where `hooks` and `gid` offer them to the composition root.
"""
