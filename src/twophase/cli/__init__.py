"""The `twophase` command. `app` has the table of all commands; each is a module that is imported only when it is used.

A command reads its options, calls the part that does the work, and prints: `http_api` is how those speak that ask a
running server, `spark_exit` how those end that run Spark.
"""
