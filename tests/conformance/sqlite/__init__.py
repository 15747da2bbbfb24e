"""What only the embedded engine must do: its file, its lock, its disk."""
