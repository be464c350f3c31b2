"""Reading a session: the window that fits a token budget, or exactly what the caller asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.values import JsonObject, json_value
from lango.store.db.clock import seconds
from lango.store.db.statement import CoreTransaction, Prepared, Row, Transaction
from lango.store.schema.tables import Key, app_states, messages, sessions, user_states
from lango.store.sessions.entries import LoadedSession, SessionKey, StoredMessage, StoredSession
from lango.store.sessions.retained_rows import spans

ROW = [
    messages.c.seq,
    messages.c.event_id,
    messages.c.invocation_id,
    messages.c.role,
    messages.c.author,
    messages.c.content,
    sa.cast(messages.c.tool_calls, sa.Text),
    messages.c.tokens,
    messages.c.timestamp,
    sa.cast(messages.c.event, sa.Text),
    sa.cast(messages.c.changes, sa.Text),
]
live = messages.c.undone_by.is_(None)
_SPANS: Final = 200  # of one statement: SQLite takes 500 rows of values


@dataclass(frozen=True, slots=True)
class NewestEvents:
    """ADK's GetSessionConfig: the newest `count` events, and none before `after` (a timestamp)."""

    count: int | None = None
    after: float | None = None


def key_is(key: SessionKey) -> sa.ColumnElement[bool]:
    """The condition that names one session."""
    return sa.and_(*(sessions.c[name] == value for name, value in key.of_row.items()))


def from_header(key: SessionKey, header: JsonObject) -> StoredSession:
    """The session from row 0 of the load statement."""
    return StoredSession(
        pk=header["pk"],
        public_id=header["public_id"],
        key=key,
        title=header["title"],
        state=header["state"],
        app_state=header["app_state"] or {},
        user_state=header["user_state"] or {},
        next_seq=header["next_seq"],
        total_tokens=header["total_tokens"],
        message_count=header["message_count"],
        turn_seq=header["turn_seq"],
        open_calls=header["open_calls"],
        created=float(header["created"]),
        updated=float(header["updated"]),
        last_activity=float(header["last_activity"]),
    )


def from_rows(key: SessionKey, rows: Sequence[Any]) -> LoadedSession | None:
    """The session from the rows of the load statement."""
    if not rows:
        return None
    stored = sorted(map(StoredMessage._make, rows))
    header = json_value(stored[0].event or "{}")
    after = header["after"]
    return LoadedSession(from_header(key, header), stored[1:], after == 0, after)


_APP: Final = ("tenant", "app_name")
_USER: Final = (*_APP, "user_id")


def _named(table: sa.Table, *names: str) -> Iterator[sa.ColumnElement[bool]]:
    """Conditions on columns, by bind parameters of their names."""
    return (table.c[name] == sa.bindparam(name) for name in names)


_SESSION: Final = Prepared(sa.select(sessions).where(*_named(sessions, *_USER, "id")))
_APP_STATE: Final = Prepared(
    sa.select(app_states.c.key, app_states.c.value).where(*_named(app_states, *_APP))
)
_USER_STATE: Final = Prepared(
    sa.select(user_states.c.key, user_states.c.value).where(*_named(user_states, *_USER))
)
_LIVE_ROWS: Final = sa.select(*ROW).where(live, messages.c.session_pk == sa.bindparam("of_pk"))
_ROWS_AFTER: Final = Prepared(
    _LIVE_ROWS.where(messages.c.seq > sa.bindparam("after")).order_by(messages.c.seq)
)
_ROW_AT: Final = Prepared(_LIVE_ROWS.where(messages.c.seq == sa.bindparam("at")))
_EDGE: Final = Prepared(
    sa.select(messages.c.seq)
    .where(
        messages.c.session_pk == sa.bindparam("of_pk"),
        live,
        messages.c.cum_tokens >= sa.bindparam("least"),
    )
    .order_by(messages.c.cum_tokens, messages.c.seq)
    .limit(1)
)


async def read_states(
    connection: AsyncConnection, key: SessionKey
) -> tuple[JsonObject, JsonObject]:
    """The app's and the user's state."""
    return await _states(CoreTransaction(connection), key)


async def _states(transaction: Transaction, key: SessionKey) -> tuple[JsonObject, JsonObject]:
    app = await transaction.all(_APP_STATE, tenant=key.tenant, app_name=key.app_name)
    return {row.key: row.value for row in app}, await _user_state(transaction, key)


async def read_user_state(connection: AsyncConnection, key: SessionKey) -> JsonObject:
    """The user's state."""
    return await _user_state(CoreTransaction(connection), key)


async def _user_state(transaction: Transaction, key: SessionKey) -> JsonObject:
    user = await transaction.all(_USER_STATE, **key.of_user)
    return {row.key: row.value for row in user}


async def read_session(
    transaction: Transaction, key: SessionKey
) -> tuple[StoredSession, Row] | None:
    """The session's row with its states, by plain SQL."""
    row = await transaction.one(_SESSION, **key.of_row)
    if row is None:
        return None
    app_state, user_state = await _states(transaction, key)
    return stored_session(row, app_state, user_state), row


def stored_session(row: Row, app_state: JsonObject, user_state: JsonObject) -> StoredSession:
    """One row of `sessions` as the layers above see it."""
    return StoredSession(
        pk=row.pk,
        public_id=row.public_id,
        key=SessionKey(row.tenant, row.app_name, row.user_id, row.id),
        title=row.title,
        state=row.state,
        app_state=app_state,
        user_state=user_state,
        next_seq=row.next_seq,
        total_tokens=row.total_tokens,
        message_count=row.message_count,
        turn_seq=row.turn_seq,
        open_calls=row.open_calls,
        created=seconds(row.created),
        updated=seconds(row.updated),
        last_activity=seconds(row.last_activity),
    )


async def load_window(
    transaction: Transaction, key: SessionKey, budget: int | None
) -> LoadedSession | None:
    """The same as the hand-written load statement, for SQLite."""
    session_and_row = await read_session(transaction, key)
    if session_and_row is None:
        return None
    session, row = session_and_row
    after = 0
    if budget is not None and session.total_tokens > budget:
        lower_bound = session.total_tokens - budget
        edge = await transaction.one(_EDGE, of_pk=session.pk, least=lower_bound)
        after = min(session.turn_seq - 1, edge.seq if edge else 0)
    rows = list(await transaction.all(_ROWS_AFTER, of_pk=session.pk, after=after))
    if row.compacted_seq is not None and row.compacted_seq <= after:
        summary_seq = row.compacted_seq
        rows = [*await transaction.all(_ROW_AT, of_pk=session.pk, at=summary_seq), *rows]
    stored = [StoredMessage._make(cast("Sequence[Any]", columns)) for columns in rows]
    return LoadedSession(session, stored, after == 0, after)


async def with_pinned(connection: AsyncConnection, loaded: LoadedSession) -> LoadedSession:
    """The loaded rows, with the older ones of open calls and tasks."""
    rows = {row.seq: row for row in loaded.messages}
    pinned = spans(loaded.session.open_calls, loaded.window_after)
    for first in range(0, len(pinned), _SPANS):
        span = _spans(pinned[first : first + _SPANS])
        in_span = messages.c.seq.between(span.c.first, span.c.last)
        in_invocation = sa.or_(
            span.c.invocation == "", span.c.invocation == messages.c.invocation_id
        )
        of_session = messages.c.session_pk == loaded.session.pk
        statement = (
            sa.select(*ROW)
            .join_from(span, messages, sa.and_(of_session, in_span, in_invocation))
            .where(live)
        )
        rows |= {
            row.seq: row for row in map(StoredMessage._make, await connection.execute(statement))
        }
    return replace(loaded, messages=[rows[seq] for seq in sorted(rows)])


def _spans(pinned: Sequence[tuple[str | None, int, int]]) -> sa.CTE:
    """Spans of rows as a table; an empty invocation matches any."""
    columns = sa.column("invocation", sa.Text), sa.column("first", Key), sa.column("last", Key)
    rows = [(invocation or "", first, last) for invocation, first, last in pinned]
    return sa.values(*columns).data(rows).cte("spans")


async def load_recent(
    connection: AsyncConnection, key: SessionKey, recent: NewestEvents
) -> LoadedSession | None:
    """Exactly what a GetSessionConfig asks for, even if that separates calls from responses."""
    session_and_row = await read_session(CoreTransaction(connection), key)
    if session_and_row is None:
        return None
    session, _ = session_and_row
    statement = sa.select(*ROW).where(messages.c.session_pk == session.pk, live)
    if recent.after is not None:
        statement = statement.where(
            messages.c.seq > await _last_before(connection, session.pk, recent.after)
        )
    if recent.count is not None:
        statement = statement.limit(recent.count)
    rows = await connection.execute(statement.order_by(messages.c.seq.desc()))
    newest_first = [StoredMessage._make(row) for row in rows]
    return LoadedSession(session, newest_first[::-1], whole=False)


async def _last_before(connection: AsyncConnection, pk: int, timestamp: float) -> int:
    """The seq of the newest row older than a time (0 if none): all rows after it are newer."""
    seq = await connection.scalar(
        sa.select(messages.c.seq)
        .where(messages.c.session_pk == pk, live, messages.c.timestamp < timestamp)
        .order_by(messages.c.seq.desc())
        .limit(1)
    )
    return seq or 0
