"""Reading SQLite, PostgreSQL and MySQL/MariaDB with their Python drivers: no jar, nothing written, one snapshot."""
