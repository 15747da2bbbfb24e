"""Faults planted in the product's own code, one at a time, and the tests that must notice each of them.

`make faults` plants them in a copy of the checkout and writes docs/faults-report.md. The faults are data: one TOML file
a room in `table/`.
"""
