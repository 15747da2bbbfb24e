"""The division of a read into tasks, and the work of each."""
