"""One adapter per database library.

It opens one transaction and performs statements in it.
"""
