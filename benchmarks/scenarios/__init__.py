"""Scenarios beyond a plain rate: faults, filled tables, memory, starts.

Each prints its figures beside their bars.
"""
