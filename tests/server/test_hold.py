"""A server on a held database: it answers, its probe says that it is not ready, and it stops."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest_asyncio

from faults.turns.workspace import Workspace
from lango.store.hold import hold_database, release_database
from tests.server.served_apps import PATIENCE, Live, ServedApp, live, served_app
from tests.support.databases import temporary_sqlite


@pytest_asyncio.fixture
async def held(tmp_path: Path, tenant: str) -> AsyncIterator[ServedApp]:
    """A server on a database of its own, which an operator holds."""
    async with (
        temporary_sqlite() as url,
        served_app(Workspace(url, "app", tmp_path), tenant) as opened,
    ):
        await hold_database(opened.process.store.database)
        yield opened


async def worker_of(served: Live) -> str:
    async with httpx.AsyncClient(base_url=served.url) as client:
        return (await client.get("/readyz")).json()["worker"]


async def test_it_serves_and_waits_for_the_release(held: ServedApp) -> None:
    async with live(held, held.worker()) as served:
        assert await worker_of(served) == "starting"
        turn = await held.turn(await held.session(), 'call mark {"name": "x"}')
        assert (await held.turns().get(turn)).state == "queued"
        assert await release_database(held.process.store.database)
        assert (await held.turns().wait(turn)).state == "completed"
        async with asyncio.timeout(PATIENCE):
            while await worker_of(served) != "ok":  # noqa: ASYNC110 - a probe is no event
                await asyncio.sleep(0.02)


async def test_it_stops_while_it_is_held(held: ServedApp) -> None:
    async with asyncio.timeout(PATIENCE):
        async with live(held, held.worker()) as served:
            assert await worker_of(served) == "starting"
    assert held.process.workspace.effects.words() == []
