"""How a read is cut into tasks, and what each does."""
