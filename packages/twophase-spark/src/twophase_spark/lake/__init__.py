"""The lake: history, attempts and audit log of a store in Delta tables.

Promise: a row leaves the store only when a file that was read again and found equal to the store holds it, and a query
of the lake shows it once, wherever the archive was cut off.
"""
