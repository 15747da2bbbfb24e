"""Messages in memory and their state machine."""
