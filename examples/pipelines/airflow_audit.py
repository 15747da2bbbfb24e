"""Airflow 3: the audit as a task, every day at half past five.

Put the folder `examples` beside your DAGs. A broken promise fails the task at once; an audit that could not be made is
tried again. The sentence of the report is the task's result.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from examples.pipelines.audit import PROMISE_BROKEN, audit


# One at a time: each run continues where the state of the last one ends, so there is nothing to catch up either.
@dag(
    schedule="30 5 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["twophase"],
)
def twophase_audit() -> None:
    """Every message of the coordinators, compared with the services' databases."""

    @task(retries=2, retry_delay=timedelta(minutes=1))
    def compare() -> str:
        done = audit()
        if done.exit_code == PROMISE_BROKEN:
            raise AirflowFailException(done.sentence)
        if done.exit_code:
            raise AirflowException(done.sentence)
        return done.sentence

    compare()


twophase_audit()
