"""The sink `twophase` of `write` and `writeStream`: one 2-phase message a row.

It publishes exactly once a key. A ledger decides, a database of the publisher's: before a row is prepared its gid
stands there, and one row of the barrier, committed when all tasks have written, publishes a whole batch (`ledger`).
Everything before and after that may be cut off and repeated. `docs/how-to/publish-from-spark.md` and
`docs/reference/spark-sink.md` have the rest.
"""
