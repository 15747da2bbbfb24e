"""Type checkers read these two; importing them would load every library."""

collect_ignore = ["accepted.py", "misused.py"]
