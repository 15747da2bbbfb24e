"""Reading SQLite, PostgreSQL and MySQL/MariaDB with their Python drivers.

No jar is needed, nothing is written, and a read is one snapshot.
"""
