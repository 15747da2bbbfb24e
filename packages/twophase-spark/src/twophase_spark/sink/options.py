"""The options of the sink, checked once on the driver.

A request that cannot work is refused before a row is read. The result travels to every executor in Spark's plan, so it
holds no secret: secrets are named, and looked up where they are used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from twophase.client.transport.sync import address_of
from twophase.core.address import why_reserved
from twophase.core.credentials import is_reference
from twophase.core.errors import ConfigurationError
from twophase.core.headers import why_no_header
from twophase.core.limits import DELAY_MS_MAX, TIMEOUT_TO_FAIL_MS_MAX
from twophase.core.many import MESSAGES_MAX
from twophase.core.options import Durability
from twophase.core.topic import TOPIC_PREFIX, validate_topic
from twophase_spark.datasource.options.given import given_options
from twophase_spark.sink.database import checked_reference
from twophase_spark.sink.described import KNOWN
from twophase_spark.sink.secret import require_no_secret_header, require_no_secret_in

FAIL: Final = "fail"
SKIP: Final = "skip"
KEEP: Final = "keep"
ABANDON: Final = "abandon"
SUBMIT: Final = "submit"
CHECK_BACK: Final = "check-back"
PLACEHOLDER: Final = re.compile(r"\$\{([^{}]+)\}")
_PUBLISHER_CHARACTERS_MAX: Final = 128
_CONNECTIONS_MAX: Final = 32
_ADDRESSES: Final = ("url", "urlColumn", "urlTemplate", "topic")
_PAYLOADS: Final = ("payloadColumn", "payloadColumns", "payloadTemplate")
_REQUIRED: Final = {
    "coordinator": "the coordinator's address, http://host:36789.",
    "ledger": "the database in which batches are decided: sqlite:///file.db, postgresql://user@host/db, env:NAME.",
    "publisher": "a name that stays the same for ever, also when a checkpoint is lost.",
    "keyColumns": "the columns that name a row; a key is published exactly once.",
    "checkUrl": "the address of `twophase spark checkback`, as the coordinator reaches it.",
}


class Publishing(msgspec.Struct, frozen=True):
    """The treatment of each row.

    The fields are names of columns, templates and references; empty where an option was not given.
    """

    coordinator: str
    ledger: str
    publisher: str
    key_columns: tuple[str, ...]
    check_url: str
    url: str = ""
    url_column: str = ""
    url_template: str = ""
    payload_column: str = ""
    payload_columns: tuple[str, ...] = ()
    payload_template: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    authorization: str = ""
    ca: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    check_after_ms: int = 60_000
    delay_ms: int = 0
    durability: Durability = Durability.SUBMIT
    skips_abandoned: bool = False
    abandons_failed: bool = False
    rows_per_request: int = MESSAGES_MAX
    connections: int = 4

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is named."""
        templates = PLACEHOLDER.findall(self.url_template) + PLACEHOLDER.findall(self.payload_template)
        single = [name for name in (self.url_column, self.payload_column) if name]
        return (*self.key_columns, *self.payload_columns, *single, *templates)


def parse(options: Mapping[str, str], *, streaming: bool = False) -> Publishing:
    """Parse the options of `write` or `writeStream`; their names in any case.

    Raises:
        ConfigurationError: naming the option and what it may be; never its value where that may be a secret.
    """
    given = _given(options, streaming=streaming)
    for name, what in _REQUIRED.items():
        if not given.get(name):
            raise ConfigurationError(f"Option {name} is missing: {what}")
    _one_at_most(given, _PAYLOADS)
    if not _one_at_most(given, _ADDRESSES):
        raise ConfigurationError(f"Which address do the rows call? Give one of the options {', '.join(_ADDRESSES)}.")
    authorization = given.get("authorization", "")
    if authorization and not is_reference(authorization):
        raise ConfigurationError("Option authorization is env:NAME or file:PATH, because Spark shows options.")
    return Publishing(
        coordinator=_address("coordinator", given["coordinator"]),
        ledger=checked_reference(given["ledger"]),
        publisher=_publisher(given["publisher"]),
        key_columns=_columns("keyColumns", given["keyColumns"]),
        check_url=_require_unreserved("checkUrl", _address("checkUrl", given["checkUrl"])),
        url=_topic(given["topic"]) if given.get("topic") else _branch_address("url", given.get("url", "")),
        url_column=given.get("urlColumn", ""),
        url_template=_branch_address("urlTemplate", _template("urlTemplate", given.get("urlTemplate", ""))),
        payload_column=given.get("payloadColumn", ""),
        payload_columns=_columns("payloadColumns", given["payloadColumns"]) if given.get("payloadColumns") else (),
        payload_template=_template("payloadTemplate", given.get("payloadTemplate", "")),
        headers=_headers(given.get("branchHeaders", "")),
        authorization=authorization,
        ca=given.get("ca"),
        client_certificate=given.get("clientCertificate"),
        client_key=given.get("clientKey"),
        check_after_ms=1_000 * _number(given, "checkAfter", 60, TIMEOUT_TO_FAIL_MS_MAX.value // 1_000),
        delay_ms=1_000 * _number(given, "delay", 0, DELAY_MS_MAX.value // 1_000, least=0),
        durability=Durability.CHECK_BACK if _one_of(given, "durability", SUBMIT, CHECK_BACK) else Durability.SUBMIT,
        skips_abandoned=_one_of(given, "onAbandoned", FAIL, SKIP),
        abandons_failed=_one_of(given, "onFailure", KEEP, ABANDON),
        rows_per_request=_number(given, "rowsPerRequest", MESSAGES_MAX, MESSAGES_MAX),
        connections=_number(given, "connections", 4, _CONNECTIONS_MAX),
    )


def _given(options: Mapping[str, str], *, streaming: bool) -> dict[str, str]:
    given = given_options(options, KNOWN, "sink", ("path", "checkpointlocation"))  # Spark's own
    if streaming and "onFailure" in given:
        raise ConfigurationError("Option onFailure is only for write: a streaming batch that failed always comes back.")
    return given


def _one_at_most(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    given_names = [name for name in names if given.get(name)]
    if len(given_names) > 1:
        raise ConfigurationError(f"Options {' and '.join(given_names)} exclude each other.")
    return given_names[0] if given_names else ""


def _address(option: str, url: str) -> str:
    require_no_secret_in(option, url)
    try:
        address_of(url.partition("?")[0])
    except ConfigurationError:
        raise ConfigurationError(f"Option {option} is not an http:// or https:// address.") from None
    return url


def _branch_address(option: str, url: str) -> str:
    return _require_unreserved(option, require_no_secret_in(option, url))


def _require_unreserved(option: str, url: str) -> str:
    why_not = why_reserved(url)
    if why_not:
        raise ConfigurationError(f"Option {option}: {why_not}.")
    return url


def _publisher(name: str) -> str:
    if not name.isprintable() or len(name) > _PUBLISHER_CHARACTERS_MAX:
        raise ConfigurationError(f"Option publisher is at most {_PUBLISHER_CHARACTERS_MAX} printable characters.")
    return name


def _columns(option: str, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise ConfigurationError(f"Option {option}: column names separated by commas, each once, not {text!r}.")
    return names


def _template(option: str, text: str) -> str:
    if text and not PLACEHOLDER.search(text):
        raise ConfigurationError(f"Option {option} has no ${{column}} in it.")
    return text


def _topic(name: str) -> str:
    try:
        return TOPIC_PREFIX + validate_topic(name, "topic")
    except Exception as error:
        raise ConfigurationError(f"Option topic: {name!r} is not a topic's name.") from error


def _headers(text: str) -> tuple[tuple[str, str], ...]:
    if not text:
        return ()
    try:
        headers = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError:
        raise ConfigurationError('Option branchHeaders is a JSON object of texts: {"x-tenant":"7"}.') from None
    for name, value in headers.items():
        require_no_secret_header(name, value)
        # A reference stands for a value that is looked up on the executors; its text may stand here.
        why_not = why_no_header(name, value)
        if why_not:
            raise ConfigurationError(f"Option branchHeaders: {why_not}")
    return tuple(headers.items())


def _number(given: Mapping[str, str], option: str, default: int, most: int, *, least: int = 1) -> int:
    text = given.get(option) or str(default)
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise ConfigurationError(f"Option {option} is a whole number from {least} to {most}, not {text!r}.")
    return int(text)


def _one_of(given: Mapping[str, str], option: str, usual: str, other: str) -> bool:
    """Return True when the other value is given."""
    word = (given.get(option) or usual).lower()
    if word not in {usual, other}:
        raise ConfigurationError(f"Option {option} is {usual} or {other}, not {word!r}.")
    return word == other
