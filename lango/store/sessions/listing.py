"""Pages for user interfaces: sessions newest first, and messages, by keyset pagination."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.turns.states import TurnState
from lango.core.values import JsonObject, json_text, json_value
from lango.errors import InvalidIdError, SessionNotFoundError
from lango.store.db.clock import seconds
from lango.store.db.database import Database
from lango.store.db.statement import CoreTransaction, Prepared, Row, only
from lango.store.schema.tables import IS_RUNNING, app_states, messages, sessions, turns, user_states
from lango.store.sessions.entries import SessionKey, StoredMessage, StoredSession
from lango.store.sessions.load import ROW, live, stored_session

T = TypeVar("T")

MAX_PAGE: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page, and the cursor of the next page; None on the last page."""

    items: Sequence[T]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session's entry in a list, read without its messages."""

    tenant: str
    app_name: str
    user_id: str
    id: str
    public_id: str
    title: str
    message_count: int
    total_tokens: int
    created: float
    last_activity: float
    status: TurnState | None = None  # "running" if a turn runs, else that of the newest turn

    @classmethod
    def of_new(cls, session: StoredSession) -> SessionSummary:
        """The entry of a session that was just created: it has no turns yet."""
        return cls(
            tenant=session.key.tenant,
            app_name=session.key.app_name,
            user_id=session.key.user_id,
            id=session.key.session_id,
            public_id=session.public_id,
            title=session.title,
            message_count=session.message_count,
            total_tokens=session.total_tokens,
            created=session.created,
            last_activity=session.last_activity,
        )

    @property
    def key(self) -> SessionKey:
        """The session's key."""
        return SessionKey(self.tenant, self.app_name, self.user_id, self.id)


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Filters of a session list, besides app and user."""

    title: str = ""  # substring, case-insensitive
    status: TurnState | None = None
    since: datetime | None = None  # last active at this time or later; aware
    until: datetime | None = None  # last active before


ANY: Final = SessionFilter()


def _encode(position: list[Any]) -> str:
    return base64.urlsafe_b64encode(json_text(position).encode()).decode().rstrip("=")


def _decode(cursor: str) -> tuple[datetime, int]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        micros, pk = json_value(base64.urlsafe_b64decode(padded).decode())
        if type(micros) is not int or type(pk) is not int or not 0 <= pk < 1 << 63:
            raise ValueError(cursor)
        return _EPOCH + timedelta(microseconds=micros), pk
    except (ValueError, TypeError, OverflowError, RecursionError) as problem:
        raise InvalidIdError(
            "Not a cursor of this list: take `next_cursor` of the page before."
        ) from problem


_is_root_session = sessions.c.parent_pk.is_(None)
"""Top-level sessions: those of agents that a tool ran are children of the tool's session."""
_turns = turns.c.session_pk == sessions.c.pk
_newest_turn = sa.select(turns.c.state).where(_turns).order_by(turns.c.number.desc()).limit(1)
_status = sa.func.coalesce(
    sa.select(turns.c.state).where(_turns, IS_RUNNING).scalar_subquery(),
    _newest_turn.scalar_subquery(),
).label("status")
_SUMMARY: Final = sa.select(sessions, _status)


def check_limit(limit: int) -> int:
    """Return the limit of a page; ValueError unless it is 1 to MAX_PAGE."""
    if not 1 <= limit <= MAX_PAGE:
        raise ValueError(f"The limit of a page is 1 to {MAX_PAGE}, not {limit}.")
    return limit


async def list_page(
    database: Database,
    *,
    tenant: str,
    app_names: Sequence[str],
    user_id: str | None,
    session_filter: SessionFilter,
    cursor: str | None,
    limit: int,
) -> Page[SessionSummary]:
    """The sessions of some apps by last activity, newest first."""
    apps = list(dict.fromkeys(app_names))
    count = check_limit(limit) + 1
    values = _values(user_id, session_filter) | (_position(cursor) if cursor else {})
    if not apps:
        return Page([], None)
    app_values = {f"app_{number}": name for number, name in enumerate(apps)}
    statement = _newest(len(apps), frozenset(values))
    values |= {"in_tenant": tenant, "count": count, **app_values}
    if database.is_sqlite and not _SEARCHES.isdisjoint(values):
        rows = await database.read(
            lambda connection: CoreTransaction(connection).all(statement, **values)
        )
    else:
        rows = await database.read(statement, **values)
    has_more = len(rows) > limit
    rows = rows[:limit]
    next_cursor = _encode([_micros(rows[-1].last_activity), rows[-1].pk]) if has_more else None
    return Page([_summary(row) for row in rows], next_cursor)


def _values(user_id: str | None, filters: SessionFilter) -> dict[str, Any]:
    """The values of the filters that are set, by bind parameter."""
    values = {
        "of_user": user_id,
        "in_title": _escaped(filters.title) or None,
        "has_status": filters.status,
        "since": filters.since and filters.since.astimezone(UTC),
        "until": filters.until and filters.until.astimezone(UTC),
    }
    return {name: value for name, value in values.items() if value is not None}


def _escaped(text: str) -> str:
    """A text with the wildcards of `LIKE` escaped."""
    return "".join(f"{_ESCAPE}{letter}" if letter in f"{_ESCAPE}%_" else letter for letter in text)


def _position(cursor: str) -> dict[str, Any]:
    """The position of the previous page's last session, as bind parameters."""
    time, pk = _decode(cursor)
    return {"active": time, "pk": pk}


_ESCAPE: Final = "/"
_time = sessions.c.last_activity
_is_behind = sa.tuple_(_time, sessions.c.pk) < sa.tuple_(
    sa.bindparam("active", type_=_time.type), sa.bindparam("pk", type_=sessions.c.pk.type)
)
_CONDITIONS: Final[dict[str, sa.ColumnElement[bool]]] = {
    "of_user": sessions.c.user_id == sa.bindparam("of_user"),
    "in_title": sessions.c.title.icontains(
        sa.bindparam("in_title", type_=sa.String()), escape=_ESCAPE
    ),
    "has_status": _status.element == sa.bindparam("has_status"),
    "since": _time >= sa.bindparam("since"),
    "until": _time < sa.bindparam("until"),
    "pk": _is_behind,
}
"""Conditions by bind parameter: a statement has those whose value is given."""
_SEARCHES: Final = {"in_title", "has_status"}
"""Those that may refuse most of the sessions that an index finds: they may take long."""


@lru_cache(maxsize=256)
def _newest(apps: int, filter_names: frozenset[str]) -> Prepared:
    """The newest sessions of several apps: up to `count` of each, from the end of its index."""
    conditions = [condition for name, condition in _CONDITIONS.items() if name in filter_names]
    conditions += [sessions.c.tenant == sa.bindparam("in_tenant"), _is_root_session]
    count = sa.bindparam("count", type_=sa.Integer())
    by_app = [
        _SUMMARY.where(sessions.c.app_name == sa.bindparam(f"app_{number}"), *conditions)
        .order_by(_time.desc(), sessions.c.pk.desc())
        .limit(count)
        for number in range(apps)
    ]
    if apps == 1:
        return Prepared(by_app[0])
    newest = sa.union_all(*(sa.select(select.subquery()) for select in by_app)).subquery()
    ordered = sa.select(newest).order_by(newest.c.last_activity.desc(), newest.c.pk.desc())
    return Prepared(ordered.limit(count))


@lru_cache(maxsize=8)
def _identified(*columns: str) -> Prepared:
    """The top-level session with given values of these columns, which identify it."""
    conditions = (sessions.c[column] == sa.bindparam(column) for column in columns)
    return Prepared(_SUMMARY.where(*conditions, _is_root_session))


async def find(database: Database, **values: str) -> SessionSummary:
    """The top-level session that the values of its columns identify; SessionNotFoundError."""
    row = only(await database.read(_identified(*values), **values))
    if row is None:
        raise SessionNotFoundError
    return _summary(row)


def _micros(time: datetime) -> int:
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def _summary(row: Row | sa.Row[Any]) -> SessionSummary:
    return SessionSummary(
        tenant=row.tenant,
        app_name=row.app_name,
        user_id=row.user_id,
        id=row.id,
        public_id=row.public_id,
        title=row.title,
        message_count=row.message_count,
        total_tokens=row.total_tokens,
        created=seconds(row.created),
        last_activity=seconds(row.last_activity),
        status=row.status,
    )


async def app_names(connection: AsyncConnection, tenant: str) -> list[str]:
    """The apps in which a tenant has sessions: one index lookup for each."""
    of_tenant = sessions.c.tenant == tenant
    first = sa.select(sa.func.min(sessions.c.app_name).label("app_name")).where(of_tenant)
    walk = first.cte(recursive=True)
    following = sa.select(sa.func.min(sessions.c.app_name)).where(
        of_tenant, sessions.c.app_name > walk.c.app_name
    )
    walk = walk.union_all(
        sa.select(following.scalar_subquery()).where(walk.c.app_name.is_not(None))
    )
    names = await connection.scalars(sa.select(walk.c.app_name))
    return [name for name in names if name is not None]


async def list_all(
    connection: AsyncConnection, *, tenant: str, app_name: str, user_id: str | None
) -> list[StoredSession]:
    """Every session with its state, the least recently updated first, for ADK's list_sessions."""
    statement = sa.select(sessions).where(
        sessions.c.tenant == tenant, sessions.c.app_name == app_name, _is_root_session
    )
    users = sa.select(user_states).where(
        user_states.c.tenant == tenant, user_states.c.app_name == app_name
    )
    if user_id is not None:
        statement = statement.where(sessions.c.user_id == user_id)
        users = users.where(user_states.c.user_id == user_id)
    rows = (
        await connection.execute(
            statement.order_by(sessions.c.updated, sessions.c.user_id, sessions.c.id)
        )
    ).all()
    app_rows = await connection.execute(
        sa.select(app_states.c.key, app_states.c.value).where(
            app_states.c.tenant == tenant, app_states.c.app_name == app_name
        )
    )
    app_state = {row.key: row.value for row in app_rows}
    user_state: dict[str, JsonObject] = {}
    for row in await connection.execute(users):
        user_state.setdefault(row.user_id, {})[row.key] = row.value
    return [stored_session(row, app_state, user_state.get(row.user_id, {})) for row in rows]


async def page_messages(
    connection: AsyncConnection, pk: int, *, before: int | None, after: int | None, limit: int
) -> list[StoredMessage]:
    """Messages in order: the newest `limit`, those before a seq, or those after one."""
    statement = sa.select(*ROW).where(
        messages.c.session_pk == pk, live, messages.c.role != "control"
    )
    if after is not None:
        statement = statement.where(messages.c.seq > after).order_by(messages.c.seq)
    else:
        statement = statement.order_by(messages.c.seq.desc())
    if before is not None:
        statement = statement.where(messages.c.seq < before)
    rows = [
        StoredMessage._make(row)
        for row in await connection.execute(statement.limit(check_limit(limit)))
    ]
    return sorted(rows)


async def named_sessions(
    connection: AsyncConnection,
    tenant: str,
    name: str,
    *,
    app_name: str | None = None,
    user_id: str | None = None,
    limit: int = 10,
) -> list[SessionSummary]:
    """The sessions whose id or public id is `name`."""
    conditions = [
        sessions.c.tenant == tenant,
        _is_root_session,
        sa.or_(sessions.c.public_id == name, sessions.c.id == name),
    ]
    if app_name is not None:
        conditions.append(sessions.c.app_name == app_name)
    if user_id is not None:
        conditions.append(sessions.c.user_id == user_id)
    rows = await connection.execute(
        _SUMMARY.where(*conditions).order_by(sessions.c.pk).limit(limit)
    )
    return [_summary(row) for row in rows]
