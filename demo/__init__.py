"""`make demo`: money moves between two banks while their processes are killed, and Spark proves nothing was lost."""
