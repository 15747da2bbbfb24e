"""Measurements of the hot path: `make bench`. What a figure in the documentation claims, a command here prints."""
