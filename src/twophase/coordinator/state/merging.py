"""Merge of a submit into the message that was prepared."""

from __future__ import annotations

from twophase.core.message import Message
from twophase.core.options import Options


def merge(known: Message, sent: Message) -> Message:
    """Return the prepared message with a submit's later branches and options.

    An option the submit does not mention keeps the prepared value; `known` itself when nothing changes. A trace that
    the prepare brought stays the message's: with another one each submit would have to be stored anew.

    >>> from twophase.core.message import Branch
    >>> known = Message("g", (Branch("http://b/1"),), options=Options(delay_ms=5))
    >>> merge(known, Message("g", ())) is known
    True
    >>> merge(known, Message("g", (), options=Options(request_timeout_ms=9))).options.delay_ms
    5
    """
    options = known.options
    if sent.options is options and len(sent.branches) <= len(known.branches):
        return known  # as nearly always: the decoder has one object for the usual options
    if sent.options not in (options, Options()):
        fallback = Options()
        options = Options(
            *(
                getattr(sent.options, name)
                if getattr(sent.options, name) != getattr(fallback, name) and not (name == "trace" and options.trace)
                else getattr(options, name)
                for name in Options.__struct_fields__
            )
        )
    added = sent.branches[len(known.branches) :]
    branches = known.branches + added if added else known.branches
    if options == known.options and branches is known.branches:
        return known
    check_url = known.check_url or sent.check_url
    return Message(known.gid, branches, check_url, options, known.protocol, known.prepared_check_url)
