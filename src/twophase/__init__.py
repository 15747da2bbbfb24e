"""Two-phase messages: a committed local transaction, and the calls that must follow it: both or neither."""
