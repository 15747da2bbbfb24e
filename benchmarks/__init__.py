"""Measurements of this repository: `make bench`. What a figure in the documentation claims, a command here prints."""
