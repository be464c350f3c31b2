"""lango's SessionServiceAdapter as a contender, through ADK's interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.events import APPENDED_BYTES
from bench.pg import POOL_SIZE, connect
from bench.store.contenders import service_load, service_writer, template_session
from lango.adk.sessions.service import SessionServiceAdapter
from lango.store.schema import tables
from lango.store.schema.migrate import upgrade
from lango.store.sessions.store import SqlSessionStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Table

    from bench.store.contenders import Fill, ServiceWriter

# Rows as the store itself wrote them, copied from a template: every column but these. A session
# is new but for its names; a message gets a sequence number, an id, and a turn of two messages.
_NEW_SESSION: Final = {
    "id": "gen_random_uuid()::text",
    "public_id": "gen_random_uuid()::text",
    "next_seq": "1",
    "total_tokens": "0",
    "message_count": "0",
    "invocation_id": "''",
    "turn_seq": "1",
}
_NEW_MESSAGE: Final = {
    "session_pk": "s.pk",
    "seq": "n",
    "cum_tokens": "n * t.tokens",
    "event_id": "gen_random_uuid()::text",
    "invocation_id": "'e-' || md5(s.pk || '.' || (n + 1) / 2)::uuid",
}


def copied(table: Table, new: Mapping[str, str]) -> tuple[str, str]:
    """The columns of a table, and where a copy of row `t` takes each of them from.

    KeyError for a new value of a column that the table does not have.
    """
    names = [column.name for column in table.columns if column.name != "pk"]
    if unknown := new.keys() - set(names):
        raise KeyError(f"{table.name} has no columns {sorted(unknown)}")
    return ", ".join(names), ", ".join(new.get(name, f"t.{name}") for name in names)


_SESSION_COLUMNS, _SESSION_VALUES = copied(tables.sessions, _NEW_SESSION)
_MESSAGE_COLUMNS, _MESSAGE_VALUES = copied(tables.messages, _NEW_MESSAGE)

_CREATE: Final = f"""
insert into sessions ({_SESSION_COLUMNS})
select {_SESSION_VALUES} from sessions t, generate_series(1, $2) where t.id = $1
returning id
"""  # noqa: S608 (names of our own columns)
_FILL: Final = f"""
insert into messages ({_MESSAGE_COLUMNS})
select {_MESSAGE_VALUES}
from sessions s
cross join generate_series($2::bigint, $3::bigint) n
join messages t on t.session_pk = (select pk from sessions where id = $4) and t.seq =
    case $5 when 'user' then 1 when 'model' then 2 else 2 - n % 2 end
where s.id = any($1::text[])
order by n, s.pk
"""  # noqa: S608 (names of our own columns)
_ADVANCE: Final = f"""
update sessions s set
    next_seq = n + 1, total_tokens = n * t.tokens, message_count = n,
    invocation_id = {_NEW_MESSAGE["invocation_id"]}, turn_seq = n - (n + 1) % 2
from messages t, (select $2::bigint as n) as last
where s.id = any($1::text[]) and t.seq = 1
    and t.session_pk = (select pk from sessions where id = $3)
"""  # noqa: S608 (an expression of our own)


class Lango:
    """SessionServiceAdapter with its defaults and the pool size that all share."""

    name = "lango"
    message_table = "public.messages"

    def __init__(self, url: str, token_budget: int = 0) -> None:
        self._url = url
        self._store = SqlSessionStore(url, pool_size=POOL_SIZE)
        self.service = SessionServiceAdapter(self._store, token_budget=token_budget)

    @staticmethod
    async def prepare(url: str) -> None:
        """Create the tables."""
        await upgrade(url)

    async def close(self) -> None:
        """Close the service and its store."""
        await self.service.close()
        await self._store.close()

    async def sessions(self, count: int, fill: Fill | None = None) -> Sequence[str]:
        """New sessions, by id."""
        template = await self.template(fill.size if fill else APPENDED_BYTES)
        connection = await connect(self._url)
        made = [row["id"] for row in await connection.fetch(_CREATE, template, count)]
        await connection.close()
        if fill:
            await self.extend(made, 1, fill.messages, template, fill.kind)
            await self.advance(made, fill.messages, template)
        return made

    async def template(self, size: int) -> str:
        """A session with a user and a model message of this size, to copy."""
        return (await template_session(self.service, size)).id

    async def extend(
        self, sessions: Sequence[str], first: int, last: int, template: str, kind: str
    ) -> None:
        """Put messages number `first` to `last` into each of these sessions, in bulk."""
        await self._execute(_FILL, sessions, first, last, template, kind)

    async def advance(self, sessions: Sequence[str], messages: int, template: str) -> None:
        """Update the message counts of the sessions."""
        await self._execute(_ADVANCE, sessions, messages, template)

    async def _execute(self, statement: str, *values: object) -> None:
        connection = await connect(self._url)
        try:
            await connection.execute("set work_mem = '256MB'")  # rows are sorted by time
            await connection.execute(statement, *values)
        finally:
            await connection.close()

    async def writer(self, session: str) -> ServiceWriter:
        """A writer through ADK's interface."""
        return await service_writer(self.service, session)

    async def load(self, session: str) -> int:
        """The window of the default token budget."""
        return await service_load(self.service, session)
