"""A message's situation in words.

What happened, who decided, what blocks it, what comes next and when, and what to do. The module is pure: it works from
what the server shows and the time there, and makes no request. It claims no more than is on record; where the record
leaves two possibilities, the text names both.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from twophase.core.operating import ShownAttempt, ShownBranch, ShownMessage
from twophase.core.shell import argument
from twophase.core.verdict import word_that_decided

_SLACK_MS: Final = 2_000
"""Slack: a try that is due for less than this is in progress, not late."""
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


_LATE: Final = "arrived late"
"""In the words of an answer that no longer counts."""
_STATUSES_OF_NO_SUCH_ROUTE: Final = frozenset({0, 301, 302, 307, 308, 404, 405, 410})
"""Statuses without an answer, or from a server that does not know the path."""


class Remedy(msgspec.Struct, frozen=True):
    """A command, and when to use it."""

    command: str
    when: str


class Explanation(msgspec.Struct, frozen=True):
    """Sentences, a list for each question.

    `blocked` empty: nothing blocks the message. `then`: what happens without an operator's act.
    """

    headline: str
    happened: list[str]
    blocked: list[str]
    then: list[str]
    remedies: list[Remedy] = []


def explain(message: ShownMessage, now_ms: int) -> Explanation:
    """Explain the situation of a message.

    >>> waits = ShownMessage("g", "prepared", created_ms=0, due_ms=35_000, earliest_ms=35_000, check_url="http://a/c")
    >>> explain(waits, now_ms=5_000).headline
    'g is prepared: its producer has not said yet whether the local transaction committed.'
    """
    match message.state:
        case "prepared":
            return _prepared(message, now_ms)
        case "submitted":
            return _submitted(message, now_ms)
        case "succeed":
            return _succeeded(message, now_ms)
        case _:
            return _failed(message, now_ms)


def clock(at_ms: int, now_ms: int) -> str:
    """Return a time, and its distance from now.

    >>> clock(1_700_000_000_000, 1_700_000_090_000)
    '2023-11-14 22:13:20 UTC (1 min ago)'
    """
    when = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if abs(at_ms - now_ms) < 1_000:
        return f"{when} (now)"
    return f"{when} (in {span(at_ms - now_ms)})" if at_ms > now_ms else f"{when} ({span(now_ms - at_ms)} ago)"


def span(ms: int) -> str:
    """Return a span of time in its greatest unit.

    >>> span(999), span(90_000), span(172_800_000)
    ('0 s', '1 min', '2 d')
    """
    seconds = ms // 1000
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return "0 s"


def _prepared(message: ShownMessage, now_ms: int) -> Explanation:
    happened = [
        f"The producer prepared it at {clock(message.created_ms, now_ms)}.",
        *_in_order(_history(message, now_ms)),
    ]
    if message.check_back_durability:
        happened.append(
            "It uses check-back durability: it may have been submitted, and its branches may be in progress. That is "
            "stored once they have all succeeded, or one has failed."
        )
    headline = f"{message.gid} is prepared: its producer has not said yet whether the local transaction committed."
    asked = [one for one in message.log if one.kind == "check-back"]
    if message.parked:
        return Explanation(headline, happened, _parked(message), [RESTS, _DECIDES], _remedies(message, now_ms))
    then = [_next_question(message, now_ms), _DECIDES]
    blocked = [_no_verdict(message, asked[-1], now_ms)] if asked else []
    return Explanation(headline, happened, blocked, then, _remedies(message, now_ms) if asked else [])


def _submitted(message: ShownMessage, now_ms: int) -> Explanation:
    happened = _in_order([(message.decided_ms, _decided(message, now_ms)), *_history(message, now_ms)])
    happened += _progress(message)
    left = [one for one in message.branches if not one.done]
    headline = f"{message.gid} is submitted: {_count(left)} of {len(message.branches)} yet to succeed."
    if message.parked:
        return Explanation(headline, happened, _parked(message), [RESTS], _remedies(message, now_ms))
    blocked = [_failing(message, branch, last, now_ms) for branch, last in _last_failures(message, left)]
    if message.earliest_ms > now_ms and not blocked:
        then = [f"Its branches are called at {clock(message.earliest_ms, now_ms)}: it was sent with a delay."]
        return Explanation(
            headline, happened, [], then, [_stop(message, "to make it fail; no branch has been called yet")]
        )
    if message.due_ms > now_ms + _SLACK_MS or (blocked and message.due_ms > now_ms):
        then = [f"The rest will be called again at {clock(message.due_ms, now_ms)}, {_until(message)}."]
    else:
        then = ["The rest is being called now, or waits behind other calls to the same consumer."]
    return Explanation(headline, happened, blocked, then, _remedies(message, now_ms) if blocked else [])


def _succeeded(message: ShownMessage, now_ms: int) -> Explanation:
    took = f"{span(message.finished_ms - message.created_ms)} after it first arrived"
    happened = _in_order(
        [
            (message.decided_ms, _decided(message, now_ms)),
            *_history(message, now_ms),
            (message.finished_ms, f"Every branch had succeeded at {clock(message.finished_ms, now_ms)}, {took}."),
        ]
    )
    headline = f"{message.gid} has succeeded: {_count(message.branches)} delivered."
    return Explanation(headline, happened, [], ["Nothing: it is final."])


def _failed(message: ShownMessage, now_ms: int) -> Explanation:
    why = message.reason or message.decided_by
    who = {
        "abort": "The producer aborted it",
        "check-back": "The check-back decided it",
        "operator": "An operator decided it",
    }.get(message.decided_by, "It was decided")
    done = [branch.branch_id for branch in message.branches if branch.done]
    if done:
        effect = f"{_named(done)} had already succeeded, and stay that way; the others are not called."
    elif any(one.kind == "branch" for one in message.log):
        effect = "No branch is recorded as succeeded; calls were made, and may have had an effect."
    elif message.decided_by == "operator":
        effect = "No branch call is recorded; one that was in progress at the time may have had an effect."
    elif message.check_back_durability:
        effect = "No branch call is recorded; where a submit came before, its branches may have been called."
    else:
        effect = "No branch was called."
    # The stop that decided it is named already.
    deciding = _deciding_stop(message)
    others = [one for one in message.log if one is not deciding]
    history = _history(msgspec.structs.replace(message, log=others), now_ms)
    ended = [f"{who} at {clock(message.finished_ms, now_ms)}: {why}.", effect, *_kept(message)]
    happened = _in_order([*history, *[(message.finished_ms, text) for text in ended]])
    then = ["Nothing: it is final. If the operation should happen after all, send a new message with a new gid."]
    called = "the rest of its branches are not called" if done else "its branches are not called"
    return Explanation(f"{message.gid} has failed: {called}.", happened, [], then)


def _deciding_stop(message: ShownMessage) -> ShownAttempt | None:
    """Return the stop that decided a failed message, if one did.

    Stops before it may have been refused, and were recorded in the same words.
    """
    if message.decided_by != "operator":
        return None
    stops = [one for one in message.log if one.kind == "operator" and one.result == "stop"]
    stops = [one for one in stops if f"{message.reason};".startswith(f"{one.error};")]
    return next((one for one in reversed(stops) if one.at_ms <= message.finished_ms), stops[-1] if stops else None)


def _kept(message: ShownMessage) -> Iterable[str]:
    """Return what a stop of a submitted message leaves.

    Branches are called only after the commit.
    """
    called = any(branch.done for branch in message.branches) or any(one.kind == "branch" for one in message.log)
    if message.decided_by == "operator" and message.check_url and called:
        yield "Its branches were being called, so its local transaction is committed, and stays that way."


RESTS: Final = "Nothing happens by itself: a parked message waits for a person."
_DECIDES: Final = "A submit or an abort of the producer decides it at any time."


def _decided(message: ShownMessage, now_ms: int) -> str:
    at = clock(message.decided_ms, now_ms)
    # Without a check address it may be a plain message, which belongs to no local transaction.
    committed = ": its local transaction is committed." if message.check_url else "."
    return {
        "submit": f"The producer submitted it at {at}{committed}",
        "check-back": f"The check-back decided it at {at}: the producer, when asked, answered committed.",
    }.get(message.decided_by, f"It was decided at {at} by {message.decided_by or 'a request that is not on record'}.")


def _progress(message: ShownMessage) -> Iterable[str]:
    done = [branch.branch_id for branch in message.branches if branch.done]
    if done:
        yield f"Succeeded so far: {', '.join(done)}."


def _in_order(told: Iterable[tuple[int, str]]) -> list[str]:
    """Return sentences by their times; those of one time stay in their order."""
    return [text for _, text in sorted(told, key=lambda one: one[0])]


def _history(message: ShownMessage, now_ms: int) -> list[tuple[int, str]]:
    """Return the acts of operators and every contradiction, each with its time."""
    incidents: list[tuple[int, str]] = []
    for one in message.log:
        at = clock(one.at_ms, now_ms)
        text = ""
        if one.kind == "operator" and one.result == "redirect":
            what = "The check address" if one.branch_id == "00" else f"Branch {one.branch_id}"
            text = f"{what} ({one.target or 'none'}) was {one.error}, at {at}."
        elif one.kind == "operator" and one.result == "stop":
            # One that decided is not among these.
            text = f"A stop was asked for, and has not stopped it: '{one.error}', at {at}."
        elif one.kind == "operator":
            text = f"{one.error[:1].upper()}{one.error[1:]}, at {at}."
        elif one.kind == "incident":
            text = f"Incident at {at}: {one.error}. A promise is broken: investigate."
        elif _LATE in one.error:
            of = f", of branch {one.branch_id} ({one.target})" if one.kind == "branch" and one.branch_id else ""
            text = f"At {at}{of}: {one.error}."
        if text:
            incidents.append((one.at_ms, text))
    return incidents


def _parked(message: ShownMessage) -> list[str]:
    if message.state == "prepared" and not message.check_url:
        return ["It is parked: it has no check-back address, so no producer can be asked, and silence decides nothing."]
    if park := _operators_park(message):
        return [f"It is {park.error}."]
    if message.state == "prepared":
        return ["It is parked: it had no check-back address. It got its present one since then."]
    left = [one for one in message.branches if not one.done]
    return [
        "It is parked: its branches have failed as many times in a row as attempts_max allows.",
        *(_failing(message, branch, last, 0) for branch, last in _last_failures(message, left)),
        *_not_called_since(message, left),
    ]


def _operators_park(message: ShownMessage) -> ShownAttempt | None:
    """Return the act of an operator that parked a message.

    None where something else did.

    An act is on record from its request on, and may take effect after a decision or a redrive that came later. So these
    ended its parking only where something else can have parked the message since.
    """
    acts = [one for one in message.log if one.kind == "operator" and one.result in {"park", "redrive"}]
    parks = [one for one in acts if one.result == "park"]
    if not parks or _may_park_itself(message):
        since_ms = message.decided_ms if message.state == "submitted" else 0
        parks = [one for one in acts[-1:] if one.result == "park" and one.at_ms >= since_ms]
    return parks[-1] if parks else None


def _may_park_itself(message: ShownMessage) -> bool:
    """Return True where a message may have been parked without an operator."""
    if message.state == "prepared":
        return any(one.kind == "check-back" and one.error.endswith("no check-back address") for one in message.log)
    # The limit of a server may have been raised since, and a redirect begins to count anew.
    moved = any(one.kind == "operator" and one.result == "redirect" for one in message.log)
    return moved or message.attempts >= max(1, message.attempts_max)


def _until(message: ShownMessage) -> str:
    if message.attempts_max:
        return f"and again after each failure, until it succeeds or {message.attempts_max} failed rounds have parked it"
    return "and again after each failure, until it succeeds"


def _next_question(message: ShownMessage, now_ms: int) -> str:
    if not message.check_url:
        return f"At {clock(message.due_ms, now_ms)} it is parked, because it has no check-back address."
    if message.due_ms > now_ms:
        return f"Its producer is asked at {clock(message.due_ms, now_ms)}, and again until there is a verdict."
    return "Its producer is being asked now, or the question is queued behind others."


def _no_verdict(message: ShownMessage, last: ShownAttempt, now_ms: int) -> str:
    who = f"its producer ({last.target or 'no address'})"
    times = f" {message.attempts} questions brought no verdict." if message.attempts > 1 else ""
    if last.result == "in_progress":
        return f"At {clock(last.at_ms, now_ms)} {who} answered that the transaction is still open{_word(last)}.{times}"
    return f"At {clock(last.at_ms, now_ms)} {who} gave no verdict: {_what(last)}.{times}"


def _failing(message: ShownMessage, branch: ShownBranch, last: ShownAttempt, now_ms: int) -> str:
    when = f", at {clock(last.at_ms, now_ms)}" if now_ms else ""
    kept = "a committed transaction cannot be taken back" if message.check_url else "a submitted message is delivered"
    if last.result == "ongoing":
        return f"Branch {branch.branch_id} ({last.target}) asked to be called again later{when}{_word(last)}."
    refusal = f" It refused (409), but {kept}." if last.status == 409 else ""
    return f"Branch {branch.branch_id} ({last.target}) fails: {_what(last)}{when}{_word(last)}.{refusal}"


def _word(one: ShownAttempt) -> str:
    """Return the word in the answer's body that decided.

    A reader who knows only HTTP does not expect one.
    """
    word = word_that_decided(one.status, one.result)
    return f"; {word}" if word else ""


def _what(one: ShownAttempt) -> str:
    """Describe an answer.

    >>> _what(ShownAttempt(0, "branch", status=500, error="no such account"))
    'status 500, "no such account"'
    """
    if one.status:
        return f'status {one.status}, "{one.error}"' if one.error else f"status {one.status}"
    return f"no answer, {one.error}" if one.error else "no answer"


def _last_failures(message: ShownMessage, left: list[ShownBranch]) -> Iterable[tuple[ShownBranch, ShownAttempt]]:
    """Return the last failure of each branch, at the address to which it goes now."""
    last: dict[str, ShownAttempt] = {}
    for one in message.log:
        if one.kind == "branch" and one.branch_id and _LATE not in one.error:
            last[one.branch_id] = one
        elif one.kind == "operator" and one.result == "redirect":
            last.pop(one.branch_id, None)
    return [(branch, last[branch.branch_id]) for branch in left if branch.branch_id in last]


def _not_called_since(message: ShownMessage, left: list[ShownBranch]) -> Iterable[str]:
    """Yield the branches that an operator redirected and no call has met since."""
    called = {branch.branch_id for branch, _ in _last_failures(message, left)}
    moved = {one.branch_id for one in message.log if one.kind == "operator" and one.result == "redirect"}
    for branch in left:
        if branch.branch_id in moved - called:
            yield f"Branch {branch.branch_id} has not been called at its new address ({branch.url}) yet."


def _count(branches: list[ShownBranch]) -> str:
    return "1 branch" if len(branches) == 1 else f"{len(branches)} branches"


def _named(branch_ids: list[str]) -> str:
    """Return the branches as a subject: `Branch 01`, `Branches 01, 02`."""
    return f"{'Branch' if len(branch_ids) == 1 else 'Branches'} {', '.join(branch_ids)}"


def _remedies(message: ShownMessage, now_ms: int) -> list[Remedy]:
    gid = argument(message.gid)
    found = []
    if message.parked and (message.state == "submitted" or message.check_url):
        found.append(Remedy(f"twophase messages redrive {gid}", "once the cause is fixed"))
    elif not message.parked and message.due_ms > now_ms + _SLACK_MS:
        found.append(Remedy(f"twophase messages retry-now {gid}", "once the cause is fixed, instead of waiting"))
    if elsewhere := _redirect(message):
        found.append(Remedy(f"twophase messages redirect {elsewhere} --to URL {gid}", "if that address is wrong"))
    found.append(_stop(message, _what_a_stop_does(message)))
    return found


def _what_a_stop_does(message: ShownMessage) -> str:
    if message.state == "prepared" and not message.check_url:
        return "to make it fail; no producer can be asked, so make sure first that its transaction did not commit"
    if message.state == "prepared":
        return (
            "to make it fail; its producer is asked first, and a message whose transaction committed is delivered; "
            "without its verdict only --override makes it fail"
        )
    return f"to make it fail: {what_is_left_uncalled(message)}"


def what_is_left_uncalled(message: ShownMessage) -> str:
    """Return what a stop of a submitted message costs."""
    left = "the remaining branches" if any(one.done for one in message.branches) else "its branches"
    though = ", although its transaction is committed" if message.check_url else ""
    return f"{left} are no longer called{though}"


def _redirect(message: ShownMessage) -> str:
    """Return the option that names the call whose address may be wrong.

    It is empty where no address looks wrong.
    """
    if message.state == "prepared":
        asked = [
            one
            for one in message.log
            if one.kind == "check-back" and one.target and message.check_url.startswith(one.target)
        ]
        return "--check" if asked and asked[-1].result != "in_progress" and _looks_wrong(asked[-1]) else ""
    left = [one for one in message.branches if not one.done]
    wrong = [branch for branch, last in _last_failures(message, left) if _looks_wrong(last)]
    return f"--branch {shlex.quote(wrong[0].branch_id)}" if wrong else ""


def _looks_wrong(last: ShownAttempt) -> bool:
    return last.result != "ongoing" and last.status in _STATUSES_OF_NO_SUCH_ROUTE


def _stop(message: ShownMessage, when: str) -> Remedy:
    override = "--override " if message.state == "prepared" and not message.check_url else ""
    return Remedy(f"twophase messages stop {override}{argument(message.gid)}", when)
