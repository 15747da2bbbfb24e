"""Writes of SQLAlchemy's connections and sessions beside an open block.

They are seen by listeners to every Engine and every Session, which are added with the first block. A statement that
writes is refused before it is executed. What a session still holds when the block ends is refused then: it would be
written behind the commit, or never. So is what one on the block's connection holds when it is closed. What was refused
stays refused: a dependency of a framework may commit its session behind the branch's answer, with each call again.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Engine, event

from twophase.barrier.beside import Block, open_blocks
from twophase.barrier.written import writes
from twophase.core.credentials import without_credentials
from twophase.core.errors import OutsideTransaction

ALLOWED: Final = "twophase_outside"
"""The execution option of writes that may stay.

It is of a statement, a connection or an engine.
"""
_ALLOW: Final = (
    f"Where a write may stay although the block fails, such as a log, give its engine or connection the execution "
    f"option {ALLOWED}=True."
)
_KEPT: Final = "_twophase_kept"
"""The attribute of a Session with the objects whose changes may not be written."""
_DROPPING: Final = ("after_soft_rollback", "pending_to_transient", "persistent_to_detached")
"""The events of a Session that drops changes."""
_adding: Final = threading.Lock()
_added: Final[set[str]] = set()
"""The parts of SQLAlchemy that have the listeners: `core`, `orm`."""


def watch() -> None:
    """Add the listeners, once."""
    orm = "sqlalchemy.orm" in sys.modules
    if "core" in _added and ("orm" in _added or not orm):
        return
    with _adding:
        if "core" not in _added:
            event.listen(Engine, "before_cursor_execute", _before_cursor_execute, retval=True)
            _added.add("core")
        if orm and "orm" not in _added:
            from sqlalchemy.orm import Session  # noqa: PLC0415 -- where the application uses it

            event.listen(Session, "after_transaction_create", _after_transaction_create)
            event.listen(Session, "transient_to_pending", _transient_to_pending)
            _added.add("orm")


def _before_cursor_execute(
    connection: Connection,
    _cursor: Any,
    statement: str,
    parameters: Any,
    context: Any,
    _many: bool,  # noqa: FBT001
) -> tuple[str, Any]:
    """Refuse a write beside the open blocks; raises OutsideTransaction."""
    blocks = list(open_blocks())
    if (
        blocks
        and not any(_is_inside(one.handle, connection) for one in blocks)
        and not context.execution_options.get(ALLOWED)
        and writes(statement)
    ):
        raise OutsideTransaction(
            f"the block's code writes on another connection than the block's, to {named(connection.engine)}. The "
            "statement was not executed.",
            remedy="Execute it on what the block or function is given: `Session(connection)` is an ORM session in the "
            f"transaction, and `AsyncSession(connection)` with an async engine. {_ALLOW}",
        )
    return statement, parameters


def _after_transaction_create(session: Any, transaction: Any) -> None:
    if transaction.parent is None:
        _note(session)


def _transient_to_pending(session: Any, _instance: Any) -> None:
    _note(session)


def _note(session: Any) -> None:
    """Note a session in its block, or else in the innermost: its end asks for changes."""
    blocks = list(open_blocks())
    if not blocks or any(session is _below(one.handle) for one in blocks):
        return
    bind = session.bind
    own = [one for one in blocks if isinstance(bind, Connection) and _is_inside(one.handle, bind)]
    block = (own or blocks)[0]
    block.sessions[id(session)] = session
    if own:
        vars(session)["close"] = partial(_close, session, block)  # no event comes before it; `with Session(…)` calls it


def _close(session: Any, block: Block) -> None:
    """Close a session on a block's connection, which loses unwritten changes.

    Behind an error of the block they are meant to be.
    """
    vars(session).pop("close", None)
    if block.is_open and block.lost is None and id(sys.exc_info()[1]) in (id(None), block.handled):
        block.lost = unwritten(block.handle, session, "a Session was closed that")
    session.close()


def keep_unwritten(handle: Any, sessions: Iterable[Any]) -> OutsideTransaction | None:
    """Refuse the unwritten changes of sessions, now and later.

    They can be dropped, by `rollback` or `expunge`.

    Returns:
        The error for the first of them; None without any.
    """
    first: OutsideTransaction | None = None
    for session in sessions:
        error = unwritten(handle, session)
        if error is not None:
            vars(session)[_KEPT] = _changed(session)
            if not event.contains(session, "before_flush", _before_flush):  # here: most sessions never need them
                event.listen(session, "before_flush", _before_flush)
                for dropping in _DROPPING:
                    event.listen(session, dropping, _forget_dropped)
            first = first or error
    return first


def _before_flush(session: Any, _context: Any, _instances: Any) -> None:
    """Refuse to write what a block has refused; raises OutsideTransaction."""
    still = _forget_dropped(session)
    if still:
        raise OutsideTransaction(
            f"the Session holds changes of {_classes(still)} that were refused when their block ended.",
            remedy="Call `rollback()` or `expunge()` of the Session, which drops them. Write in the next block on what "
            "it is given.",
        )


def _forget_dropped(session: Any, _dropped: Any = None) -> list[Any]:
    """Return the objects whose refused changes a session still holds.

    Those that it has dropped may be added to it again.
    """
    kept = vars(session).pop(_KEPT, None)
    if not kept:
        return []
    ids = {id(one) for one in _changed(session)}
    still = [one for one in kept if id(one) in ids]
    if still:
        vars(session)[_KEPT] = still
    return still


def unwritten(handle: Any, session: Any, when: str = "the block ended while a Session") -> OutsideTransaction | None:
    """Return the error for a session that holds unwritten changes."""
    changed = _changed(session)
    bind = _bind_of(session, changed)
    if not changed or (bind is not None and bind.get_execution_options().get(ALLOWED)):
        return None
    what = f"{when} held changes of {_classes(changed)} that were not written"
    if isinstance(bind, Connection) and _is_inside(handle, bind):
        return OutsideTransaction(
            f"{what}.", remedy="Call `flush()` or `commit()` of the Session at the end of the block."
        )
    return OutsideTransaction(
        f"{what}, and it is outside the transaction.",
        remedy=f"Use a Session on what the block or function is given, `Session(connection)`, and flush it. {_ALLOW}",
    )


def _changed(session: Any) -> list[Any]:
    return [*session.new, *session.deleted, *(one for one in session.dirty if session.is_modified(one))]


def _bind_of(session: Any, changed: list[Any]) -> Any:
    try:
        return session.get_bind(mapper=type(changed[0])) if changed else None
    except Exception:  # noqa: BLE001 -- it has none, or its own rule fails: then it is not the block's
        return None


def _classes(changed: list[Any]) -> str:
    return ", ".join(sorted({type(one).__name__ for one in changed}))


def named(engine: Engine) -> str:
    """Return an address without its login."""
    return repr(without_credentials(engine.url.render_as_string()))


def _below(handle: Any) -> Any:
    """Return the blocking connection or session behind an async one."""
    return getattr(handle, "sync_connection", None) or getattr(handle, "sync_session", handle)


def _is_inside(handle: Any, connection: Connection) -> bool:
    """Return True for a connection that works in the block's transaction.

    It may be the handle's, of a Session, or another one on the same connection of the driver.
    """
    handle = _below(handle)
    if connection is handle:
        return True
    own = _drivers(handle)
    return any(id(one) in own for one in _driver_of(connection))


def _drivers(handle: Any) -> set[int]:
    """Return the ids of the drivers' connections that the handle works on."""
    if isinstance(handle, Connection):
        return {id(one) for one in _driver_of(handle)}
    transaction = handle.get_transaction() if hasattr(handle, "get_transaction") else None
    if transaction is not None:
        # No public method lists them; a Session on several databases is refused at its commit.
        known = transaction._connections.values()  # noqa: SLF001 -- as above
        return {id(one) for entry in known for one in _driver_of(entry[0])}
    return {id(handle), id(getattr(handle, "connection", None) or handle)}  # a driver's, or Django's wrapper


def _driver_of(connection: Connection) -> tuple[Any, ...]:
    if connection.closed or connection.invalidated:
        return ()
    pooled: Any = connection.connection
    return tuple(one for one in (pooled.dbapi_connection, pooled.driver_connection) if one is not None)
