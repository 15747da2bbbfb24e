"""The requirements on the embedded engine alone: its file, its lock, its disk."""
