"""The request of a read: options, columns and filters, checked.

They are checked against the database.
"""
