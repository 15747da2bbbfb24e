"""`spark.read.format("twophase")` and `spark.readStream.format("twophase")`: a coordinator's tables as DataFrames.

Also barrier and ledger tables of the business databases. `docs/reference/spark-source.md` lists tables, columns and
options, and says what a read guarantees.
"""
