"""What a person reads of a benchmark: progress, tables, plots."""
