-- The log is written back, as it is in a file that has run for a while.
pragma wal_checkpoint(truncate)
