"""What goes on beside the requests: rows read back when they are due, old ones forgotten."""
