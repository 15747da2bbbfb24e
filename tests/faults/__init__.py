"""Faults in the product's own code, planted one at a time; tests must notice each.

`make faults` plants them in a copy of the checkout and writes docs/faults-report.md. The faults are data: one TOML file
a room in `table/`.
"""
