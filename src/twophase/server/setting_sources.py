"""The sources of the server's settings, in their order:

    command line  >  environment (TWOPHASE_ + the name in capitals)  >  --config file (TOML)  >  default

A value that cannot work is refused before anything is opened, by an error that names the setting and its source.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec

from twophase.core.bearer import TOKEN_VARIABLE
from twophase.core.credentials import secret_of
from twophase.core.errors import ConfigurationError
from twophase.core.trust import CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE
from twophase.server.setting_conflicts import why_not_together
from twophase.server.setting_refusals import meant, why_not
from twophase.server.settings import PREFIX, Settings

CONFIG_VARIABLE: Final = "TWOPHASE_CONFIG"
# Variables of twophase that are no settings of the server.
_OTHER_VARIABLES: Final = frozenset(
    {
        *(CONFIG_VARIABLE, "TWOPHASE_FAILPOINT", "TWOPHASE_BARRIER_URL", "TWOPHASE_URL", TOKEN_VARIABLE),
        *(CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE),
    }
)
_MAY_BE_REFERENCES: Final = frozenset({"store", "alert_webhook"})
"""Addresses that hold a secret. Each may be `env:NAME` or `file:PATH` instead."""


def load(
    command_line: Mapping[str, object],
    environment: Mapping[str, str],
    file: Path | None = None,
    source: str = "the command line",
) -> Settings:
    """Return the settings in force.

    Arguments:
        command_line: values by setting name; None stands for not given.
        environment: usually `os.environ`.
        file: a TOML file of setting names and values.
        source: the name of the first source, for errors.

    Raises:
        ConfigurationError: an unknown name, or a value that cannot work; names the setting and its source.

    >>> load({"http_port": "8080"}, {"TWOPHASE_HTTP_PORT": "9090", "TWOPHASE_HOST": "0.0.0.0"}).http_port
    8080
    """
    chosen: dict[str, Any] = {}
    if file is not None:
        for name, value in _read(file).items():
            chosen[name] = _checked(name, value, f"{file}")
    for name in Settings.__struct_fields__:
        variable = PREFIX + name.upper()
        if variable in environment:
            chosen[name] = _checked(name, environment[variable], variable)
    for name, value in command_line.items():
        if value is not None:
            chosen[name] = _checked(name, value, source)
    settings = Settings(**chosen)
    if wrong := why_not_together(settings):
        raise _refused(wrong)
    return settings


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return variables that look like settings but name no setting: probably misspelt.

    >>> unknown_variables({"TWOPHASE_HOTS": "0.0.0.0", "HOME": "/"})
    ['TWOPHASE_HOTS']
    """
    known = {PREFIX + name.upper() for name in Settings.__struct_fields__} | _OTHER_VARIABLES
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in known)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _refused(f"config: {file} cannot be read: {error}.") from error


def _checked(name: str, value: object, source: str) -> object:
    hint = get_type_hints(Settings, include_extras=True).get(name)
    if hint is None:
        raise _refused(f"{name}: there is no such setting (from {source}).{meant(name, Settings.__struct_fields__)}")
    try:
        if name == "destinations" and isinstance(value, str):
            value = msgspec.json.decode(value)
        if name in _MAY_BE_REFERENCES and isinstance(value, str):
            value = secret_of(value)
        # Not strict: the environment and the command line have only text.
        return msgspec.convert(value, hint, strict=not isinstance(value, str))
    except msgspec.DecodeError as error:
        raise _refused(f"{name}: {why_not(hint, value, error)} (from {source}).") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error.message} (from {source})", remedy=error.remedy) from None


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError(why, remedy="Correct the named setting; `twophase server --help` lists them all.")
