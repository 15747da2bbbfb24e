"""The options of the sink, checked once on the driver.

A request that cannot work is refused before a row is read. The result travels to every executor in Spark's plan, so it
holds no secret: secrets are named, and looked up where they are used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from twophase.client.transport.sync import address_of
from twophase.core.address import TOPIC_PREFIX, why_reserved
from twophase.core.credentials import is_reference
from twophase.core.errors import ConfigurationError
from twophase.core.headers import why_no_header
from twophase.core.limits import DELAY_MS_MAX, TIMEOUT_TO_FAIL_MS_MAX, Limit
from twophase.core.many import MESSAGES_MAX
from twophase.core.options import DURABILITIES, Durability
from twophase.core.topic import validate_topic
from twophase_spark.option_table import Option, Read, one_of, require_fitting, table_of, values_of, whole
from twophase_spark.sink.database import checked_reference
from twophase_spark.sink.secret import require_no_secret_header, require_no_secret_in
from twophase_spark.source.options.given import given_options

WRITE: Final = "write"
PLACEHOLDER: Final = re.compile(r"\$\{([^{}]+)\}")
_ADDRESSES: Final = ("url", "urlColumn", "urlTemplate", "topic")
_ONE: Final = "one of these"
_PAYLOADS: Final = ("payloadColumn", "payloadColumns", "payloadTemplate")
_PUBLISHER_CHARACTERS_MAX: Final = 128


def _address(option: str, url: str) -> str:
    require_no_secret_in(option, url)
    try:
        address_of(url.partition("?")[0])
    except ConfigurationError:
        raise ConfigurationError(f"Option {option} is not an http:// or https:// address.") from None
    return url


def _ledger(_: str, text: str) -> str:
    return checked_reference(text)


def _check_address(option: str, url: str) -> str:
    return _require_unreserved(option, _address(option, url))


def _branch_address(option: str, url: str) -> str:
    return _require_unreserved(option, require_no_secret_in(option, url))


def _require_unreserved(option: str, url: str) -> str:
    why_not = why_reserved(url)
    if why_not:
        raise ConfigurationError(f"Option {option}: {why_not}.")
    return url


def _publisher(_: str, name: str) -> str:
    if not name.isprintable() or len(name) > _PUBLISHER_CHARACTERS_MAX:
        raise ConfigurationError(f"Option publisher is at most {_PUBLISHER_CHARACTERS_MAX} printable characters.")
    return name


def _columns(option: str, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    if not all(names) or len(set(names)) != len(names):
        raise ConfigurationError(f"Option {option}: column names separated by commas, each once, not {text!r}.")
    return names


def _template(option: str, text: str) -> str:
    if text and not PLACEHOLDER.search(text):
        raise ConfigurationError(f"Option {option} has no ${{column}} in it.")
    return text


def _address_template(option: str, text: str) -> str:
    return _branch_address(option, _template(option, text))


def _topic(_: str, name: str) -> str:
    try:
        return TOPIC_PREFIX + validate_topic(name, "topic") if name else ""
    except Exception as error:
        raise ConfigurationError(f"Option topic: {name!r} is not a topic's name.") from error


def _headers(_: str, text: str) -> tuple[tuple[str, str], ...]:
    try:
        headers = msgspec.json.decode(text or "{}", type=dict[str, str])
    except msgspec.MsgspecError:
        raise ConfigurationError('Option branchHeaders is a JSON object of texts: {"x-tenant":"7"}.') from None
    for name, value in headers.items():
        require_no_secret_header(name, value)
        # A reference stands for a value that is looked up on the executors; its text may stand here.
        why_not = why_no_header(name, value)
        if why_not:
            raise ConfigurationError(f"Option branchHeaders: {why_not}")
    return tuple(headers.items())


def _authorization(_: str, text: str) -> str:
    if text and not is_reference(text):
        raise ConfigurationError("Option authorization is env:NAME or file:PATH, because Spark shows options.")
    return text


def _seconds(least: int, most_ms: Limit) -> Read:
    read = whole(least, most_ms.value // 1_000)
    return lambda option, text: 1_000 * read(option, text)


def _switch(usual: str, other: str) -> Read:
    return one_of((usual, other), lambda word: word == other)


class Publishing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The treatment of each row; the options that make it are

    coordinator: The coordinator's address, `http://host:36789`.
    ledger: SQLite or PostgreSQL, never with a password: `env:NAME` or `file:PATH` (with the whole URL), or a URL
        without one. Batches are decided there; missing tables are created.
    publisher: A name that never changes, even if a checkpoint is lost; part of every gid.
    keyColumns: The columns that identify a row, comma-separated; part of every gid.
    checkUrl: The check address: that of `twophase spark checkback`.
    url: The address that every row calls: `http://…`, or any address of a branch.
    urlColumn: The column with each row's address.
    urlTemplate: An address with `${column}` in it; values are percent-encoded.
    topic: A topic's name, the same as `url` with `topic://` before it.
    payloadColumn: The column that is sent unchanged: text, or bytes of UTF-8.
    payloadColumns: The columns that are sent, as one JSON object; comma-separated.
    payloadTemplate: JSON with `${column}` in it, each of which becomes its JSON: `{"id":${id}}`.
    branchHeaders: Headers of the calls, a JSON object: `{"x-tenant":"7"}`. A value may be `env:NAME` or `file:PATH`,
        and must be if the header's name or the value's first word marks a credential.
    authorization: The `Authorization` for the coordinator: `env:NAME` or `file:PATH` only.
    ca: PEM file of the authority of an https coordinator, on driver and executors.
    clientCertificate: PEM file of the certificate for the coordinator, on driver and executors.
    clientKey: PEM file of its key, of mode 0600; the certificate's file may have the key.
    checkAfter: Seconds after which the coordinator asks about a prepared message, 1 to 86400.
    delay: Seconds between the prepare of a message and its call at the earliest, up to the coordinator's limit.
    durability: `submit`: the coordinator stores a submit before it answers and calls. `check-back`: it answers and
        calls at once, which saves a change of its store for each message, and asks `checkUrl` if it dies before the
        outcome is stored.
    onAbandoned: For a row whose message was given up: `fail`, or `skip` to leave it out.
    onFailure: What a failed `write` does with the messages that it prepared: `keep` them for another attempt with the
        same rows, or `abandon` them if the batch is not decided yet, so that these keys can never be published. A
        decided batch is published, and check-backs finish it. A streaming batch that failed always comes back.
    rowsPerRequest: Messages in one request, 1 to 500.
    connections: Concurrent requests of one task, 1 to 32.

    The fields are names of columns, templates and references; empty where an option was not given.
    """

    coordinator: Annotated[str, Option(_address)]
    ledger: Annotated[str, Option(_ledger)]
    publisher: Annotated[str, Option(_publisher)]
    key_columns: Annotated[tuple[str, ...], Option(_columns)]
    check_url: Annotated[str, Option(_check_address)]
    url: Annotated[str, Option(_branch_address, shown=_ONE)] = ""
    url_column: Annotated[str, Option(shown=_ONE)] = ""
    url_template: Annotated[str, Option(_address_template, shown=_ONE)] = ""
    topic: Annotated[str, Option(_topic, shown=_ONE)] = ""
    payload_column: Annotated[str, Option()] = ""
    payload_columns: Annotated[tuple[str, ...], Option(_columns, shown="all columns")] = ()
    payload_template: Annotated[str, Option(_template)] = ""
    headers: Annotated[tuple[tuple[str, str], ...], Option(_headers, name="branchHeaders")] = ()
    authorization: Annotated[str, Option(_authorization)] = ""
    ca: Annotated[str | None, Option(shown="`TWOPHASE_CA`, or the system's")] = None
    client_certificate: Annotated[str | None, Option(shown="`TWOPHASE_CLIENT_CERTIFICATE`")] = None
    client_key: Annotated[str | None, Option(shown="`TWOPHASE_CLIENT_KEY`")] = None
    check_after_ms: Annotated[int, Option(_seconds(1, TIMEOUT_TO_FAIL_MS_MAX), name="checkAfter", shown="`60`")] = (
        60_000
    )
    delay_ms: Annotated[int, Option(_seconds(0, DELAY_MS_MAX), name="delay")] = 0
    durability: Annotated[Durability, Option(one_of(DURABILITIES, DURABILITIES.__getitem__), shown="`submit`")] = (
        Durability.SUBMIT
    )
    skips_abandoned: Annotated[bool, Option(_switch("fail", "skip"), name="onAbandoned", shown="`fail`")] = False
    abandons_failed: Annotated[bool, Option(_switch("keep", "abandon"), ((WRITE,),), "onFailure", "`keep`")] = False
    rows_per_request: Annotated[int, Option(whole(1, MESSAGES_MAX))] = MESSAGES_MAX
    connections: Annotated[int, Option(whole(1, 32))] = 4

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is named."""
        templates = PLACEHOLDER.findall(self.url_template) + PLACEHOLDER.findall(self.payload_template)
        single = [name for name in (self.url_column, self.payload_column) if name]
        return (*self.key_columns, *self.payload_columns, *single, *templates)


OPTIONS = table_of(Publishing)


def parse(options: Mapping[str, str], *, streaming: bool = False) -> Publishing:
    """Parse the options of `write` or `writeStream`; their names in any case.

    Raises:
        ConfigurationError: naming the option and what it may be; never its value where that may be a secret.
    """
    given = given_options(options, OPTIONS, "sink", ("path", "checkpointlocation", "queryname"))  # Spark's own
    given = {name: text for name, text in given.items() if text}
    require_fitting(OPTIONS, given, ("writeStream" if streaming else WRITE,), "writeStream")
    values = values_of(OPTIONS, given)
    _one_at_most(given, _PAYLOADS)
    if not _one_at_most(given, _ADDRESSES):
        raise ConfigurationError(f"Whom do the rows call? Give one of the options {', '.join(_ADDRESSES)}.")
    if "topic" in values:
        values["url"] = values["topic"]
    return Publishing(**values)


def _one_at_most(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    given_names = [name for name in names if name in given]
    if len(given_names) > 1:
        raise ConfigurationError(f"Options {' and '.join(given_names)} exclude each other.")
    return given_names[0] if given_names else ""
