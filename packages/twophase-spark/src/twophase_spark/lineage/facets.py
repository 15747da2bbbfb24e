"""The facets that events of audits and of batches share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Final, TypeVar

from openlineage.client.generated import parent_run
from openlineage.client.generated.base import BaseFacet, RunFacet
from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.processing_engine_run import ProcessingEngineRunFacet

from twophase.core.credentials import without_credentials
from twophase.core.errors import TwophaseError

F = TypeVar("F", bound=BaseFacet)
NAMESPACE: Final = "OPENLINEAGE_NAMESPACE"
PARENT: Final = "OPENLINEAGE_PARENT_ID"
PRODUCER: Final = f"urn:twophase-spark:{version('twophase-spark')}"


def facet(kind: Callable[..., F], **values: object) -> F:
    """Return a facet made by this version."""
    return kind(producer=PRODUCER, **values)


def namespace_of(environment: Mapping[str, str]) -> str:
    """Return the namespace of jobs, as OpenLineage's environment variable says."""
    return environment.get(NAMESPACE) or "default"


def parent_named(environment: Mapping[str, str]) -> str | None:
    """Return the run that began this one, as OpenLineage's environment variable says."""
    return environment.get(PARENT) or None


def of_run(parent: str | None, error: BaseException | None = None, failure: str = "") -> dict[str, RunFacet]:
    """Return the facets of a run: Spark, its parent, and what ended it.

    Arguments:
        parent: NAMESPACE/JOB/RUN, as orchestrators hand it down; a text that names none is left out.
        error: what ended the run. The facet has the text of a twophase error, and only the kind of another: the text
            of a driver may hold values of rows.
        failure: the text for a run that failed without an error.
    """
    facets: dict[str, RunFacet] = {
        "processing_engine": facet(ProcessingEngineRunFacet, version=version("pyspark"), name="spark")
    }
    if (known := _parent(parent)) is not None:
        facets["parent"] = known
    told = failure if error is None else _told(error)
    if told:
        facets["errorMessage"] = facet(ErrorMessageRunFacet, message=told, programmingLanguage="PYTHON")
    return facets


def job_type(processing: str, kind: str) -> JobTypeJobFacet:
    """Return the type of a job: BATCH or STREAMING, and what it does."""
    return facet(JobTypeJobFacet, processingType=processing, integration="TWOPHASE", jobType=kind)


def rows_written(rows: int) -> OutputStatisticsOutputDatasetFacet:
    """Return the number of rows that a run wrote."""
    return facet(OutputStatisticsOutputDatasetFacet, rowCount=rows)


def _parent(text: str | None) -> parent_run.ParentRunFacet | None:
    namespace, _, rest = (text or "").partition("/")
    name, _, run_id = rest.rpartition("/")
    try:
        run = parent_run.Run(run_id)
    except ValueError:
        return None
    return facet(parent_run.ParentRunFacet, run=run, job=parent_run.Job(namespace, name))


def _told(error: BaseException) -> str:
    if isinstance(error, TwophaseError):
        return without_credentials(f"{error.code}: {error.message}")
    return type(error).__name__
