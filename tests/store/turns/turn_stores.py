"""All that handles turns on one database, and short words for using it."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from lango.core.ids import new_id
from lango.core.turns.events import Completed, MessageDelta
from lango.core.turns.states import NewTurn
from lango.errors import Fenced
from lango.store.db.leases import Leases
from lango.store.sessions.entries import SessionKey, SessionRef
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.claim import ClosedTurn, TurnQueue
from lango.store.turns.ledger import ToolLedger, ToolRun
from lango.store.turns.log import TurnLog
from lango.store.turns.rows import Claim, Head, Turn
from lango.store.turns.submit import SqlTurnStore
from lango.store.turns.workers import Worker, Workers
from tests.store.rows import beside, created, execute
from tests.store.rows import said as message

APP = "a"
DEAD_AFTER = 3600.0  # workers die here when a test says so
LONG_AGO = "2020-01-01 00:00:00.000000"


class TurnStores:
    """One process: a store of sessions and everything about turns on the same database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sessions = SqlSessionStore(url)
        database = self.sessions.database
        self.turns = SqlTurnStore(database)
        self.queue = TurnQueue(database, dead_after=DEAD_AFTER)
        self.log = TurnLog(database)
        self.ledger = ToolLedger(database)
        self.workers = Workers(database)

    async def session(self, where: SessionKey) -> SessionRef:
        return await created(self.sessions, where)

    async def worker(self, *apps: str) -> Worker:
        worker = Worker(new_id("wrk"), dict.fromkeys(apps or (APP,), "print-1"), "host", 1)
        await self.workers.register(worker)
        return worker

    async def freeze(self, worker: Worker) -> None:
        """Let a worker's last beat be long ago."""
        await execute(self.url, f"update workers set beat = '{LONG_AGO}' where id = '{worker.id}'")  # noqa: S608

    async def submit(self, where: SessionKey, text: str = "hi", **options: Any) -> Turn:
        return (await self.turns.submit(where, said(text), **options)).turn

    async def claim(self, pk: int | None, worker: Worker) -> Claim:
        claim = await self.queue.claim(pk or 0, worker)
        assert claim is not None
        return claim

    async def finish(self, claim: Claim) -> ClosedTurn:
        return await self.queue.close(claim, Completed())

    async def state(self, turn: Turn) -> str:
        return (await self.turns.get(turn.session.tenant, turn.id)).state

    async def heads(self, tenant_pks: list[int], app: str = APP) -> list[Head]:
        """Those of some sessions: the database is shared with other tests."""
        found = await every_head(self.queue, [app])
        return [head for head in found if head.session_pk in tenant_pks]

    async def logged(self, turn: Turn) -> list[str]:
        page = await self.log.read(turn.session.tenant, turn.id)
        assert [event.number for event in page.events] == list(range(1, len(page.events) + 1))
        return [event.type for event in page.events]


async def every_head(queue: TurnQueue, apps: Sequence[str], **options: Any) -> list[Head]:
    """What all looks show until they begin anew."""
    found = await queue.heads(apps, 100_000, **options)
    while queue.from_flow:
        found += await queue.heads(apps, 100_000, **options)
    return found


def said(text: str = "hi", **fields: Any) -> NewTurn:
    return NewTurn({"text": text}, **fields)


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[TurnStores]:
    stores = TurnStores(url)
    async with stores.sessions:
        yield stores


async def count(url: str, table: str, pk: int | None) -> int:
    """The rows a table has of a session."""
    statement = sa.text(f"select count(*) from {table} where session_pk = {pk}")  # noqa: S608
    async with beside(url) as connection:
        return await connection.scalar(statement) or 0


async def everything_fails(stores: TurnStores, claim: Claim) -> None:
    """A worker that lost its turn writes nothing, anywhere."""
    ref = await stores.sessions.locate(claim.turn.session)
    run = ToolRun(claim.turn.invocation_id, "call-1", "tool", {})
    for doing in (
        stores.sessions.append(ref, message("zombie"), claim.epoch),
        stores.log.append(claim, [MessageDelta("m", "zombie")]),
        stores.ledger.start(claim, run),
        stores.ledger.finish(claim, run, "zombie"),
        stores.queue.close(claim, Completed()),
    ):
        with pytest.raises(Fenced):
            await doing


_NUMBERS = "with recursive n(i) as (select 1 union all select i + 1 from n where i < {count})"
_BACKLOG = (
    """
insert into sessions (tenant, app_name, user_id, id, public_id, state, created, updated,
  last_activity)
{numbers}
select '{tenant}', '{app}', 'u', 's' || i, '{app}.' || i, '{{}}', {time}, {time}, {time} from n""",
    """
insert into turns (session_pk, number, id, app, tenant, flow, state, invocation_id, input, options,
  input_hash, idempotency_key, queue_position, ready, time_limit, created)
{numbers}
select s.pk, 1, '{app}.' || i, '{app}', '{tenant}', '{tenant}/' || (i % {keys}), 'queued', 'i',
  '{{}}', '{{}}', 'h', 'k', 1, {time}, 60, {time}
from n join sessions s on s.tenant = '{tenant}' and s.app_name = '{app}' and s.user_id = 'u'
  and s.id = 's' || i""",
)
_MOMENT = {  # the i-th millisecond of 2020
    True: "strftime('%Y-%m-%d %H:%M:%f000', 1577836800.0 + i / 1000.0, 'unixepoch')",
    False: "to_timestamp(1577836800 + i / 1000.0)",
}


@asynccontextmanager
async def backlog(
    url: str, tenant: str, app: str, count: int, *, keys: int = 1
) -> AsyncGenerator[None]:
    """A tenant's queued turns, each in a session of its own, submitted under so many keys."""
    sizes = {"tenant": tenant, "app": app, "keys": keys, "numbers": _NUMBERS.format(count=count)}
    is_sqlite = url.startswith("sqlite")
    time = _MOMENT[is_sqlite]
    await execute(url, *(each.format(time=time, **sizes) for each in _BACKLOG))
    if not is_sqlite:  # as autovacuum does
        await execute(url, "analyze sessions", "analyze turns")
    yield
    own = f"(select pk from sessions where tenant = '{tenant}')"  # noqa: S608
    await execute(
        url,
        *(f"delete from {name} where session_pk in {own}" for name in ("turns", "turn_events")),  # noqa: S608
        f"delete from sessions where tenant = '{tenant}'",  # noqa: S608
    )


class Lossy:
    """Every operation is done, its reply thrown away, and done again."""

    def __init__(self, stores: TurnStores, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done = 0
        self._transaction = stores.sessions.database.transaction
        monkeypatch.setattr(stores.sessions.database, "transaction", self._lossy)
        for name in ("fetch", "fetch_locked"):
            monkeypatch.setattr(Leases, name, self._lossy_fetch(getattr(Leases, name)))

    @asynccontextmanager
    async def _lossy(self, session: SessionKey | None = None) -> AsyncGenerator[Any]:
        async with self._transaction(session) as transaction:
            yield transaction
        self._lose()

    def _lossy_fetch(self, fetch: Callable[..., Any]) -> Callable[..., Any]:
        async def fetched(*values: Any) -> Any:
            rows = await fetch(*values)
            self._lose()
            return rows

        return fetched

    def _lose(self) -> None:
        self.done += 1
        if self.done % 2:
            raise ConnectionResetError
