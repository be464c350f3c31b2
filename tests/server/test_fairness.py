"""Tenants over HTTP share the workers: one does not wait for all that another handed in."""

import httpx
import sqlalchemy as sa

from lango.store.schema.tables import turns
from tests.server.served_apps import ServedApp

BEFORE, LATE, NEXT = 400, 10, 50


async def _submit(client: httpx.AsyncClient, app: str, count: int) -> set[str]:
    """Turns, each in a session of its own; their ids."""
    ids: set[str] = set()
    for _ in range(count):
        session = (await client.post("/v1/sessions", json={"app": app})).json()["id"]
        accepted = await client.post(f"/v1/sessions/{session}/turns", json={"message": "hello"})
        assert accepted.status_code == 202, accepted.text
        ids.add(accepted.json()["id"])
    return ids


async def _begun(served: ServedApp) -> list[str]:
    """The ids of the turns that have begun, in that order."""
    statement = sa.select(turns.c.id).where(
        turns.c.app == served.agent, turns.c.started.is_not(None)
    )
    ordered = statement.order_by(turns.c.started)
    rows = await served.process.store.database.read(lambda connection: connection.execute(ordered))
    return [row.id for row in rows]


async def test_a_late_tenant_starts_among_the_next(served: ServedApp) -> None:
    async with served.client("ann") as many, served.client("other-ann") as late:
        await _submit(many, served.agent, BEFORE)
        own = await _submit(late, served.agent, LATE)
    async with served.worker(concurrency=4):
        for turn in own:
            await served.turns("other-ann").wait(turn)
        begun = await _begun(served)
    assert own <= set(begun[:NEXT])
    assert len(begun) < BEFORE  # the tenant that came first still has turns to run
