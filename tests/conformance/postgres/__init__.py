"""What PostgreSQL has and SQLite has not: several nodes, a network in between, other people's rights."""
