"""One adapter per database library: it opens one transaction and performs statements in it."""
