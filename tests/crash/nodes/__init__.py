"""Three real server processes on one real PostgreSQL, under load.

Each of them fails in turn.
"""
