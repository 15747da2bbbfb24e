"""Three real server processes on one real PostgreSQL, under load, while each of them fails in turn."""
