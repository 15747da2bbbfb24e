"""What a rate alone does not show: faults, filled tables, memory, starts. Each prints its figures beside their bars."""
