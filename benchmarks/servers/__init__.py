"""What a benchmark starts, and what it knows of the machine's processes and disk."""
