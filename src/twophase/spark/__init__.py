"""The data pipeline: Spark jobs over the coordinator's tables and the business databases.

Importing this package imports nothing heavy; `session.open_session` starts Spark, `audit.audit` needs only DataFrames.
"""
