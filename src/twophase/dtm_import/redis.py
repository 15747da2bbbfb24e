"""dtm's keys in Redis. Only read.

`PREFIX_u` names everything unfinished; `PREFIX_g_GID`, `PREFIX_s_GID` and `PREFIX_b_GID` hold one transaction, its
state and its branches, `PREFIX_kv_topics_NAME` a topic. Redis has no snapshot over several commands, so the three keys
of a transaction are read in one MULTI; and scans are followed to their end, where dtm itself reads one page and forgets
the other topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final
from zlib import crc32

import msgspec
import redis

from twophase.core.errors import SourceError
from twophase.dtm_import.found import Found, FoundBranch, Others, Topic, topic

DEFAULT_PREFIX: Final = "{a}"
PAGE_KEYS: Final = 100
_TIMEOUT_S: Final = 30.0
_FAR_MS_MAX: Final = 2**53
_FINISHED: Final = frozenset({"succeed", "failed"})


class _Step(msgspec.Struct):
    action: str = ""


class _Global(msgspec.Struct):
    gid: str = ""
    trans_type: str = ""
    status: str = ""
    steps: list[_Step] | None = None
    query_prepared: str = ""
    protocol: str = ""
    options: str = ""
    custom_data: str = ""
    ext_data: str = ""
    next_cron_interval: int = 0
    create_time: datetime | None = None


class _Branch(msgspec.Struct):
    branch_id: str = ""
    op: str = ""
    status: str = ""
    url: str = ""
    bin_data: bytes | None = None


class _Kv(msgspec.Struct):
    v: str = ""


_global = msgspec.json.Decoder(_Global)
_branch = msgspec.json.Decoder(_Branch)
_kv = msgspec.json.Decoder(_Kv)


class RedisSource:
    """One Redis of dtm.

    Arguments:
        url: `redis://user:password@host:port/number`, `rediss://` for TLS.
        prefix: dtm's setting Store.RedisPrefix.
    """

    def __init__(self, url: str, prefix: str = DEFAULT_PREFIX) -> None:
        try:
            self._redis: Any = redis.Redis.from_url(
                url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, decode_responses=False
            )
        except ValueError:
            # Without the cause, which may show the password.
            raise SourceError(
                "the URL cannot be read.", remedy="Write redis://user:password@host:6379/0, special characters encoded."
            ) from None
        self._prefix = prefix
        self.nothing_here = (
            f"Nothing of dtm is in this database of Redis under the prefix {prefix!r}. If dtm's Store.RedisPrefix is "
            "another one, give --prefix; dtm uses database 0."
        )

    def check(self) -> None:
        """Look whether dtm's keys are here.

        Raises:
            SourceError: they are of another program.
            redis.RedisError: it refuses.
        """
        kind = self._redis.type(self._key("u"))
        if kind not in {b"zset", b"none"}:
            raise SourceError(
                f"{self._key('u')} is a {kind.decode()}: not dtm's.", remedy="Give --prefix, dtm's Store.RedisPrefix."
            )

    def mark(self) -> str:
        """See `Source`. Each time dtm takes a transaction it gives it another score."""
        count = total = 0
        for name, score in dict(self._redis.zscan_iter(self._key("u"), count=1_000)).items():
            count += 1
            total ^= crc32(b"%b %r" % (name, score))
        return f"{count} {total}"

    def count(self) -> int:
        """See `Source`."""
        return int(self._redis.zcard(self._key("u")))

    def pages(self) -> Iterator[Sequence[Found]]:
        """See `Source`."""
        # A scan may name a member twice while others come and go.
        scores: dict[bytes, float] = dict(self._redis.zscan_iter(self._key("u"), count=1_000))
        names = sorted(scores)
        for start in range(0, len(names), PAGE_KEYS):
            some = names[start : start + PAGE_KEYS]
            found = [self._found(name, scores[name]) for name in some]
            # A dtm that runs may have finished one since its name was read: that is in its store, and stays there.
            yield [one for one in found if one.status not in _FINISHED]

    def others(self) -> Sequence[Others]:
        """See `Source`: here `pages` brings them."""
        return []

    def topics(self) -> Sequence[Topic]:
        """See `Source`."""
        start = self._key("kv_topics_").encode()
        found: dict[str, Topic] = {}
        for key in self._redis.scan_iter(match=_escaped(start) + b"*", count=1_000):
            value = self._redis.get(key)
            if value is None:
                continue  # deleted meanwhile
            name = key[len(start) :].decode(errors="replace")
            try:
                found[name] = topic(name, _kv.decode(value).v)
            except msgspec.MsgspecError:
                found[name] = Topic(name, None)
        return [found[name] for name in sorted(found)]

    def close(self) -> None:
        """See `Source`."""
        self._redis.close()

    def _key(self, rest: str) -> str:
        return f"{self._prefix}_{rest}"

    def _found(self, name: bytes, score: float) -> Found:
        gid = name.decode(errors="replace")
        with self._redis.pipeline(transaction=True) as together:
            together.get(self._key("g_").encode() + name)
            together.get(self._key("s_").encode() + name)
            together.lrange(self._key("b_").encode() + name, 0, -1)
            body, status, branches = together.execute()
        if body is None or status is None:
            return Found(gid, expired=True)
        try:
            known = _global.decode(body)
            rows = tuple(_found_branch(_branch.decode(branch)) for branch in branches)
            name.decode()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return Found(gid, broken=True)
        steps = tuple(step.action for step in known.steps or ())
        if steps and not rows:
            return Found(gid, expired=True)
        return Found(
            gid,
            known.trans_type,
            status.decode(errors="replace"),
            rows,
            known.query_prepared,
            known.protocol,
            known.options,
            known.custom_data,
            known.ext_data,
            None if known.create_time is None else int(known.create_time.timestamp() * 1000),
            int(score * 1000) if 0 < score * 1000 < _FAR_MS_MAX else None,
            known.next_cron_interval,
            steps,
        )


def _found_branch(row: _Branch) -> FoundBranch:
    return FoundBranch(row.branch_id, row.op, row.status, row.url, row.bin_data or b"")


def _escaped(text: bytes) -> bytes:
    r"""Return the pattern that matches this text alone.

    >>> _escaped(b"{a}_kv[1]*")
    b'{a}_kv\\[1\\]\\*'
    """
    return b"".join(b"\\" + one if one in b"*?[]\\^-" else one for one in (text[i : i + 1] for i in range(len(text))))
