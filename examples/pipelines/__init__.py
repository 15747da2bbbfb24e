"""The audit in a data pipeline: Dagster, Airflow and dbt.

`docs/how-to/audit-in-a-pipeline.md` tells how to use them.
"""
