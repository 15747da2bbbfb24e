"""The output of a benchmark for people: progress, tables, plots."""
