"""The answers that differ from dtm's on purpose, with their reasons.

The replay holds every row to be true. `docs/reference/dtm-compatibility.md` is written from this table (`make docs`).
"""

from __future__ import annotations

from typing import Final

import msgspec


class Difference(msgspec.Struct, frozen=True):
    """Requests of the recording that twophase answers otherwise.

    Each has dtm's answer, twophase's answer, and the reason why that is better. `status` is twophase's, `says` a part
    of its body.
    """

    vectors: tuple[str, ...]
    what: str
    dtm: str
    ours: str
    why: str
    status: int
    says: str = ""


GENERAL: Final[tuple[tuple[str, str], ...]] = (
    (
        (
            "Answers carry more: `prepared_at` after a prepare, `code`, `state`, `remedy` with a refusal, `decided_by`,"
            " `attempts`, `parked`, `log` in a query"
        ),
        "dtm's clients ignore unknown fields; they help twophase's client, and people",
    ),
    (
        (
            "`next_cron_time` is there only while something is due, `finish_time` of a branch only when its message is"
            " final; `next_cron_interval`, `owner` and `retry_limit` are not kept"
        ),
        (
            "the first says what will happen; the time of a single branch would cost one more write; the rest is"
            " internal to dtm"
        ),
    ),
    (
        "a check-back carries `prepared_at` beside dtm's parameters",
        "the barrier of twophase's SDK needs it for safe cleaning; others ignore it",
    ),
    (
        "metrics have twophase's names",
        "dtm's count asynchronous transactions as done when they begin, and have no backlog",
    ),
    (
        (
            "after a failed call the pause is 1 s, doubled up to 60 s with jitter, unless `retry_interval` says more;"
            " dtm's is 10 s, doubled without end"
        ),
        "a consumer that was down for a day is called within a minute of its return, not a day later",
    ),
    (
        "a delay is kept with the prepare; dtm's counts only if the submit arrives, and is lost after a check-back",
        "the delay must not depend on who decides",
    ),
    (
        (
            "`resetNextCronTime` and `resetCronTime` ask no producer before `timeout_to_fail` and call no branch before"
            " its delay; the second counts only messages that it makes due earlier"
        ),
        "a producer that is asked before it begins can never begin; the producer chose the delay",
    ),
    (
        "`subscribe`, `unsubscribe` and `resetCronTime` are refused to browsers, except from the server's own pages",
        "a page, a redirect or a link could lead a person's browser to such a GET",
    ),
    (
        "an alert's body carries `event`, `target` and `age_ms` beside dtm's fields; its `error` quotes no answer",
        "an answer may repeat the payload",
    ),
    (
        (
            "[limits](limits.md) for everything: 63 calls of a message, 1 MiB a payload, and more; dtm has its"
            " database's column widths"
        ),
        "memory is bounded, and a refusal names the limit before anything is stored",
    ),
    (
        (
            "an address whose query has `gid`, `branch_id`, `op`, `trans_type`, `prepared_at` or, in a branch's,"
            " `barrier`, and a header `x-twophase-*`, `twophase-*`, `dtm-*`, `grpc-*`, `x-aws-*`, `x-google-*`,"
            " `x-forwarded-*`, `forwarded`, `x-real-ip` or `metadata-flavor`, are refused with 400"
        ),
        "a receiver that reads the first of two values would take one branch for another, and lose it",
    ),
    (
        "a gid of `queue-` and 32 hexadecimal digits is refused with 400, code TP-1000",
        "messages of queues have such gids; another message could take the place of one",
    ),
    (
        "a prepare that repeats a gid with another check address is refused with 409, code TP-2002",
        "the first one's would be asked about the second one's transaction",
    ),
    (
        (
            "a submit of other content under the gid of a message that has succeeded is refused with 409, code TP-2002,"
            " and a text of its own; dtm answers as to a repetition"
        ),
        "a client that takes the answer to a repetition for success would lose its message",
    ),
    (
        (
            "an address that cannot be called, and a gid or header that a gRPC call cannot carry, are refused with 400 "
            "when the message or subscription comes, while dtm retries for ever; so is an address with a password"
        ),
        "the sender can still correct it; a password belongs in a header, not in stores and logs",
    ),
    (
        (
            "a message with `strict` is judged by status alone; messages of twophase's client have it, those of dtm's "
            "clients do not"
        ),
        "a 200 whose JSON contains a customer named FAILURE is a success; services written for dtm work as before",
    ),
    (
        "calls and check-backs follow no redirect: a 301 or 307 is retried like an error",
        "a redirect could lead a call to an address that is not allowed",
    ),
    (
        "FAILURE and ONGOING count in the body of a 200 only; in any other answer the status alone counts",
        "a proxy's error page is no verdict",
    ),
    (
        "dtm's admin page (`/`, `/admin/`, `/assets/`) is not served",
        "`twophase messages list` and `twophase explain` do what it does, and more",
    ),
)

_WAITED: Final = tuple(
    f"wait_result_{one}"
    for one in (
        "branch_s201",
        "branch_s204",
        "branch_e500",
        "branch_nf404",
        "first_fails_second_not_called",
        "concurrent_one_fails",
        "conn_refused",
        "timeout_request_timeout_1",
    )
)

PARTICULAR: Final[tuple[Difference, ...]] = (
    Difference(
        ("prepare_trailing_slash",),
        "`POST prepare/`",
        "307 to the path without the slash",
        "serves it at once (here: 400, the body is empty)",
        "one round trip less; a client that follows redirects sees no other difference",
        400,
    ),
    Difference(
        ("prepare_twice_other_body", "submit_other_body_after_prepare"),
        "prepare or submit again with other branches",
        "200; the first content is delivered, the other silently dropped",
        "409, code TP-2002",
        "two callers use one gid for different things, and one message would be lost",
        409,
        "TP-2002",
    ),
    Difference(
        ("wait_result_resubmit_pending",),
        "submit again with another body while it is pending",
        "the stored branches' calls are repeated, or a database error",
        "409, code TP-2002; nothing is called twice",
        "as above",
        409,
        "TP-2002",
    ),
    Difference(
        ("abort_twice",),
        "abort of an aborted message",
        "409",
        "200",
        "a request that is repeated because its answer was lost has succeeded",
        200,
    ),
    Difference(
        ("prepare_no_gid", "prepare_no_gid_again", "prepare_empty_gid", "submit_no_gid"),
        "no gid, or an empty one",
        "200; all such messages are one",
        "400 naming the field",
        "the first would be delivered, the others lost",
        400,
        "gid",
    ),
    Difference(
        ("prepare_gid_with_crlf_semicolon", "prepare_gid_strip"),
        "a gid with line breaks",
        "they and `;` are silently removed",
        "400; a `;` is kept as it is",
        "the barrier row of the producer has the gid as it wrote it, and would not be found",
        400,
        "gid",
    ),
    Difference(
        ("query_gid_strip",),
        "query of such a gid",
        "the stripped one",
        "unknown",
        "nothing was stored",
        200,
        '"transaction":null',
    ),
    Difference(
        (
            "prepare_bad_json",
            "prepare_empty_body",
            "prepare_array_body",
            "prepare_null_body",
            "prepare_gid_number",
            "prepare_timeout_string",
            "prepare_payloads_missing",
            "prepare_gid_129",
            "prepare_custom_data_2000",
            "custom_data_not_json_wait",
            "custom_data_delay_negative_wait",
        ),
        "a body that makes no sense",
        "500, some after a panic or with the database's words",
        "400 naming the field, the limit and the remedy",
        "nothing is stored; a monitor that counts 5xx is not alarmed by a client's mistake",
        400,
    ),
    Difference(
        ("custom_data_not_json",),
        "`custom_data` that is not understood",
        "200; the branch is never called",
        "400",
        "what is acknowledged is delivered",
        400,
        "custom_data",
    ),
    Difference(
        ("query_custom_data_not_json",),
        "query of it",
        "submitted for ever",
        "unknown",
        "as above",
        200,
        '"transaction":null',
    ),
    Difference(
        ("prepare_branch_headers_array",),
        "`branch_headers: []`, as PHP writes an empty map",
        "500",
        "200",
        "the meaning is clear",
        200,
    ),
    Difference(
        (
            "prepare_unknown_trans_type",
            "submit_unknown_trans_type",
            "abort_unknown_trans_type",
            "prepare_no_trans_type",
        ),
        "an unknown or missing transaction type",
        "500 after a panic",
        "400, code TP-1002",
        "SAGA, TCC, XA and workflows are not served, and the answer says so",
        400,
        "TP-1002",
    ),
    Difference(
        ("registerBranch_msg", "registerBranch_bad_json", "prepareWorkflow_msg"),
        "paths of other transaction types",
        "500 for a message; `prepareWorkflow` makes one",
        "400, code TP-1002",
        "as above",
        400,
        "TP-1002",
    ),
    Difference(
        ("resetNextCronTime_gid_quote",),
        "a quote in a gid",
        "500: it reaches the database's parser",
        "200",
        "parameters are bound",
        200,
    ),
    Difference(
        _WAITED,
        "`wait_result`, and a branch fails: the text",
        "500 with a link and the branch's whole answer",
        "500 with the branch's id, status and the beginning of its answer",
        "the link is gone, and an answer may be large",
        500,
        "wait result not return success: branch 01",
    ),
    Difference(
        ("wait_result_branch_f409", "wait_result_branch_f409plain", "wait_result_branch_t200failure"),
        "`wait_result`, and a branch refuses: the text",
        "409 with the same link and answer",
        "409 with the branch's id, status and the beginning of its answer",
        "as above",
        409,
        "wait result not return success: branch 01",
    ),
    Difference(
        ("wait_result_branch_e502failure",),
        "a branch answers 502 with a page that contains the word FAILURE",
        "counts as refused: 409",
        "counts as an error: 500",
        "a gateway's page decides nothing; the branch is called again either way",
        500,
        "answered 502",
    ),
    Difference(
        ("submit_protocol_grpc_bad_target_wait",),
        "`wait_result`, and the gRPC service is not there: the text",
        "500 with the Go library's words",
        "500 with twophase's words",
        "as above",
        500,
        "wait result not return success",
    ),
    Difference(
        ("query_options", "query_wait_result_concurrent_one_fails"),
        "`concurrent` in a query",
        "always false, beside `options` that say true; `options` has `retry_limit`",
        "as submitted; `retry_limit` concerns SAGA and is not kept",
        "it shows what will be done",
        200,
        '"concurrent":true',
    ),
    Difference(
        ("checkback_query_empty",),
        "prepared without a check-back address, and its time has come",
        "delivered",
        "parked: visible, never called, never dropped",
        "silence does not mean committed; a strict server refuses such a prepare",
        200,
        '"parked":true',
    ),
    Difference(
        ("forceStop_prepared",),
        "force stop of a prepared message whose producer says: committed",
        "200, the message fails",
        "409; the message is submitted and delivered",
        "the local transaction is committed, so its calls follow; without a verdict it is 409, too, and "
        "`twophase messages stop GID --override` fails it",
        409,
        "status: submitted",
    ),
    Difference(
        ("resetCronTime_limit_0",),
        "`resetCronTime` with `limit=0`",
        "`has_remaining` true on SQL stores, false on others",
        "false when nothing waits",
        "this is what the name says",
        200,
        '"has_remaining":false',
    ),
    Difference(
        ("all_limit_1", "all_limit_2", "all_limit_2_next", "all_status_failed"),
        "order of `all`",
        "newest first, by the row number of its SQL stores",
        "unfinished messages first, by gid, the greatest first (of twophase's gids: the newest); then final ones, the "
        "last to end first",
        "it uses existing keys, so no message pays for another index",
        200,
        '"transactions":[{',
    ),
    Difference(
        ("jrpc_bad_json", "jrpc_empty_body", "jrpc_array_batch", "jrpc_id_number"),
        "JSON-RPC that cannot be parsed: the text",
        "-32700 with the Go library's words",
        "-32700 with twophase's words",
        "clients look at the code",
        400,
        "-32700",
    ),
    Difference(
        ("jrpc_no_id", "jrpc_empty_id", "jrpc_bad_version"),
        "JSON-RPC without id or version: the text",
        "-32600 repeating the request",
        "-32600 naming the field",
        "as above; and an error does not repeat a payload",
        200,
        "-32600",
    ),
    Difference(
        ("jrpc_prepare_params_string", "jrpc_prepare_params_null", "jrpc_prepare_unknown_trans_type"),
        "JSON-RPC parameters that make no sense: the text",
        "-32603 after a panic",
        "-32603 naming the field",
        "as above",
        200,
        "-32603",
    ),
    Difference(
        ("jrpc_abort_unknown", "jrpc_registerBranch_msg"),
        "`result` beside an `error`",
        "`{}` or null, as the handler ended",
        "`{}` for what was refused, null for what is not served",
        "JSON-RPC has no result beside an error",
        200,
        "-32603",
    ),
    Difference(
        ("jrpc_submit_wait_result_fail", "jrpc_submit_wait_result_500"),
        "`wait_result` over JSON-RPC: the text",
        "with a link and the branch's whole answer",
        "with the branch's id, status and the beginning of its answer",
        "as over HTTP",
        200,
        "wait result not return success: branch 01",
    ),
)
BY_VECTOR: Final = {vector: one for one in PARTICULAR for vector in one.vectors}
assert sum(len(one.vectors) for one in PARTICULAR) == len(BY_VECTOR), "a request differs in one way"
