"""The HTTP port: one connection object a client, prepare, submit and abort answered without a task."""
