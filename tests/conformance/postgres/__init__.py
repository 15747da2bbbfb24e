"""The features that PostgreSQL has and SQLite has not.

They are several nodes, a network in between, and other people's rights.
"""
