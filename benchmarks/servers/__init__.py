"""The servers that a benchmark starts, and its readings of processes and disk."""
