"""Dagster: the audit as an asset, every day at half past five.

`dagster dev -m examples.pipelines.dagster_audit` shows it. A broken promise fails the run at once; an audit that could
not be made is tried again. The asset's metadata has the counts by class and by service, and where the report is.
"""

from __future__ import annotations

import dagster as dg

from examples.pipelines.audit import PROMISE_BROKEN, Audit, audit


@dg.asset(group_name="twophase", retry_policy=dg.RetryPolicy(max_retries=2, delay=60))
def twophase_audit() -> dg.MaterializeResult:
    """Every message of the coordinators, compared with the services' databases."""
    done = audit()
    if done.exit_code:
        raise dg.Failure(done.sentence, metadata=_metadata(done), allow_retries=done.exit_code != PROMISE_BROKEN)
    return dg.MaterializeResult(metadata=_metadata(done))


def _metadata(done: Audit) -> dict[str, dg.MetadataValue]:
    found = {"report": dg.MetadataValue.path(str(done.folder / "report.html"))}
    result = done.report.get("result")
    if result is not None:
        found |= {name: dg.MetadataValue.int(count) for name, count in result["counts"].items()}
        services = {f"{one['role']} {one['service']}": one["counts"] for one in result["services"]}
        found["services"] = dg.MetadataValue.json(services)
    return found


definitions = dg.Definitions(
    assets=[twophase_audit],
    schedules=[
        dg.ScheduleDefinition(
            name="audit_daily", target=dg.AssetSelection.assets("twophase_audit"), cron_schedule="30 5 * * *"
        )
    ],
)
