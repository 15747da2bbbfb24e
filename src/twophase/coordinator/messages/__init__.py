"""One message in memory: what it holds, when it is due, and how it is shown."""
