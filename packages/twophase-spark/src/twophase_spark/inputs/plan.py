"""The request for an audit, in one value.

The command makes it, or a notebook.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from twophase.core.errors import ConfigurationError
from twophase_spark.fleet import OPTIONS, WITH_STATE, Options, options_of, read_fleet
from twophase_spark.locations import Location, Role, parse_coordinator, parse_named, require_comparable
from twophase_spark.option_table import require_fitting


class Plan(Options, frozen=True):
    """The locations of an audit, and its terms."""

    locations: tuple[Location, ...]


def plan_of(
    asked: Mapping[str, object], texts: Mapping[Role, Sequence[str]], config: Path | None, *, cores: int
) -> Plan:
    """Return the plan of options and locations, and of those in a file.

    An option that is asked for wins over the file, and locations add up. Both are tested before anything is opened.

    Arguments:
        asked: options by their names in the file.
        texts: the locations.
        config: the file.
        cores: tasks at once, where no option says it.

    Raises:
        ConfigurationError: the file, an option or a location cannot be understood, an option would do nothing, or the
            locations prove nothing.
    """
    fleet = None if config is None else read_fleet(config)
    locations = list(fleet.locations) if fleet is not None else []
    for role, given in texts.items():
        locations += [
            parse_coordinator(text) if role is Role.COORDINATOR else parse_named(role, text) for text in given
        ]
    require_comparable(locations)
    wanted = {**(fleet.options if fleet is not None else {}), **asked}
    has_state = wanted.get("state") is not None
    require_fitting(OPTIONS, wanted, (WITH_STATE,) if has_state else (), "an audit without state")
    options = options_of({"cores": cores, **wanted})
    return Plan(tuple(locations), **msgspec.structs.asdict(options))


def require_folders(plan: Plan) -> None:
    """Refuse files in folders that are not there.

    Raises:
        ConfigurationError: naming the first such file.
    """
    findings = None if plan.findings is None or "://" in plan.findings else plan.findings
    for path in (plan.html, plan.json, plan.junit, plan.state, findings, plan.write_baseline):
        if path is not None and not Path(path).absolute().parent.is_dir():
            raise ConfigurationError(f"{path}: there is no folder {Path(path).absolute().parent}; make it first.")
