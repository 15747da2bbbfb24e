"""The types that applications see.

Type checkers hold `accepted` and `misused`, in `make check`.
"""
