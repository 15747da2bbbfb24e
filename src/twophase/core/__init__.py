"""The protocol, pure: no I/O, no clock, no randomness, no third-party import but msgspec."""
