"""The source `twophase` of `spark.read` and `spark.readStream`.

It shows a coordinator's tables as DataFrames, also barrier and ledger tables of the business databases.
`docs/reference/spark-source.md` lists tables, columns and options, and the guarantees of a read.
"""
