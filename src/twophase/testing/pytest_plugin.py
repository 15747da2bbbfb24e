"""The pytest fixture for users (filled by the testing room)."""
