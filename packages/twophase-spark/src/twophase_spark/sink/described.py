"""The options of the sink in words: for the reference page and for errors."""

from __future__ import annotations

from twophase_spark.datasource.options.described import Fits, Option

OPTIONS = (
    Option("coordinator", Fits.ANY, "required", "Its address, `http://host:36789`."),
    Option(
        "ledger",
        Fits.ANY,
        "required",
        "SQLite or PostgreSQL, never with a password: `env:NAME` or `file:PATH` (where the whole URL stands), or a URL "
        "without one. Tables are made where they are missing.",
    ),
    Option("publisher", Fits.ANY, "required", "A name that stays, also when a checkpoint is lost: part of every gid."),
    Option("keyColumns", Fits.ANY, "required", "The columns that name a row, comma-separated; part of every gid."),
    Option("checkUrl", Fits.ANY, "required", "Where the coordinator asks: the address of `twophase spark checkback`."),
    Option("url", Fits.ANY, "one of these", "Whom every row calls, `http://…` or any address a branch may have."),
    Option("urlColumn", Fits.ANY, "one of these", "The column in which each row's address stands."),
    Option(
        "urlTemplate", Fits.ANY, "one of these", "An address with `${column}` in it, which are put in percent-encoded."
    ),
    Option("topic", Fits.ANY, "one of these", "A topic's name, the same as `url` with `topic://` before it."),
    Option("payloadColumn", Fits.ANY, "", "The column, text or bytes of UTF-8, that is sent as it is."),
    Option(
        "payloadColumns", Fits.ANY, "all columns", "The columns that are sent, as one JSON object; comma-separated."
    ),
    Option(
        "payloadTemplate", Fits.ANY, "", 'JSON with `${column}` in it, each of which becomes its JSON: `{"id":${id}}`.'
    ),
    Option(
        "branchHeaders",
        Fits.ANY,
        "",
        'Headers of the calls, a JSON object: `{"x-tenant":"7"}`. A value may be `env:NAME` or `file:PATH`; one that '
        "is a credential, by the header's name or its own first word, must be.",
    ),
    Option("authorization", Fits.ANY, "", "The `Authorization` for the coordinator: `env:NAME` or `file:PATH` only."),
    Option(
        "ca",
        Fits.ANY,
        "`TWOPHASE_CA`, or the system's",
        "PEM file of the authority of an https coordinator, on driver and executors.",
    ),
    Option(
        "clientCertificate",
        Fits.ANY,
        "`TWOPHASE_CLIENT_CERTIFICATE`",
        "PEM file of the certificate that is shown to the coordinator, there too.",
    ),
    Option(
        "clientKey",
        Fits.ANY,
        "`TWOPHASE_CLIENT_KEY`",
        "PEM file of its key, of mode 0600; the key may stand in the certificate's file.",
    ),
    Option(
        "checkAfter", Fits.ANY, "60", "Seconds after which the coordinator asks about a prepared message, 1 to 86400."
    ),
    Option(
        "delay",
        Fits.ANY,
        "0",
        "Seconds after it was prepared before which nobody is called for a message, up to the coordinator's bound.",
    ),
    Option(
        "durability",
        Fits.ANY,
        "`submit`",
        "`submit`: the coordinator stores a submit before it answers and calls. `check-back`: it answers and calls at "
        "once, a change of its store less a message, and asks `checkUrl` if it dies before the outcome is stored.",
    ),
    Option(
        "onAbandoned",
        Fits.ANY,
        "`fail`",
        "A row whose message was given up: `fail`, or `skip` to leave it out.",
    ),
    Option(
        "onFailure",
        Fits.BATCH,
        "`keep`",
        "What `write` does with what it prepared when it fails: `keep` it for another try of the same rows, or "
        "`abandon` it, so that these keys can never be published.",
    ),
    Option("rowsPerRequest", Fits.ANY, "500", "Messages in one request, 1 to 500."),
    Option("connections", Fits.ANY, "4", "Requests of one task under way at once, 1 to 32."),
)
KNOWN = tuple(option.name for option in OPTIONS)
