"""The options of the sink in words: for the reference page and for errors."""

from __future__ import annotations

from twophase_spark.datasource.options.described import Fits, Option

OPTIONS = (
    Option("coordinator", Fits.ANY, "required", "The coordinator's address, `http://host:36789`."),
    Option(
        "ledger",
        Fits.ANY,
        "required",
        "SQLite or PostgreSQL, never with a password: `env:NAME` or `file:PATH` (with the whole URL), or a URL without "
        "one. Missing tables are created.",
    ),
    Option(
        "publisher", Fits.ANY, "required", "A name that never changes, even if a checkpoint is lost; part of every gid."
    ),
    Option("keyColumns", Fits.ANY, "required", "The columns that identify a row, comma-separated; part of every gid."),
    Option("checkUrl", Fits.ANY, "required", "The check address: that of `twophase spark checkback`."),
    Option(
        "url", Fits.ANY, "one of these", "The address that every row calls: `http://…`, or any address of a branch."
    ),
    Option("urlColumn", Fits.ANY, "one of these", "The column with each row's address."),
    Option("urlTemplate", Fits.ANY, "one of these", "An address with `${column}` in it; values are percent-encoded."),
    Option("topic", Fits.ANY, "one of these", "A topic's name, the same as `url` with `topic://` before it."),
    Option("payloadColumn", Fits.ANY, "", "The column that is sent unchanged: text, or bytes of UTF-8."),
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
        'Headers of the calls, a JSON object: `{"x-tenant":"7"}`. A value may be `env:NAME` or `file:PATH`, and '
        "must be if the header's name or the value's first word marks a credential.",
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
        "PEM file of the certificate for the coordinator, on driver and executors.",
    ),
    Option(
        "clientKey",
        Fits.ANY,
        "`TWOPHASE_CLIENT_KEY`",
        "PEM file of its key, of mode 0600; the certificate's file may have the key.",
    ),
    Option(
        "checkAfter", Fits.ANY, "60", "Seconds after which the coordinator asks about a prepared message, 1 to 86400."
    ),
    Option(
        "delay",
        Fits.ANY,
        "0",
        "Seconds between the prepare of a message and its call at the earliest, up to the coordinator's limit.",
    ),
    Option(
        "durability",
        Fits.ANY,
        "`submit`",
        "`submit`: the coordinator stores a submit before it answers and calls. `check-back`: it answers and calls at "
        "once, which saves a change of its store for each message, and asks `checkUrl` if it dies before the outcome "
        "is stored.",
    ),
    Option(
        "onAbandoned",
        Fits.ANY,
        "`fail`",
        "For a row whose message was given up: `fail`, or `skip` to leave it out.",
    ),
    Option(
        "onFailure",
        Fits.BATCH,
        "`keep`",
        "What a failed `write` does with the messages that it prepared: `keep` them for another attempt with the same "
        "rows, or `abandon` them, so that these keys can never be published.",
    ),
    Option("rowsPerRequest", Fits.ANY, "500", "Messages in one request, 1 to 500."),
    Option("connections", Fits.ANY, "4", "Concurrent requests of one task, 1 to 32."),
)
KNOWN = tuple(option.name for option in OPTIONS)
