"""Alive, and ready."""

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path

import pytest

from faults.database.full_disk import small_disk
from faults.turns.workspace import Workspace
from lango.errors import StoreUnavailableError
from lango.server import health
from lango.server.backend import services_of
from lango.store.schema import migrate
from tests.server.served_apps import PATIENCE, ServedApp, live, served_app
from tests.store.rows import execute


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine neither fails a check nor makes the result of a test write too old."""
    monkeypatch.setattr(health, "DATABASE_TIMEOUT", PATIENCE)
    monkeypatch.setattr(health, "WRITE_EVERY", 3600.0)


async def test_a_server_that_is_warm_and_has_its_worker_is_ready(served: ServedApp) -> None:
    worker = served.worker()
    async with live(served, worker) as server, server.client(None) as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        answer = await client.get("/readyz")
        checks = {"server": "ok", "store": "ok", "worker": "ok", "warm_up": "ok"}
        assert (answer.status_code, answer.json()) == (200, {"ready": True, **checks})
        await worker.stop()
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["worker"]) == (503, "failing")


async def test_a_server_without_a_worker_needs_none(sqlite_served: ServedApp) -> None:
    async with live(sqlite_served) as server, server.client(None) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["worker"]) == (200, "none here")


async def test_a_server_that_begins_is_alive_and_not_ready(sqlite_served: ServedApp) -> None:
    services_of(sqlite_served.app).health.has_worker = True
    async with sqlite_served.client(None) as client:
        assert (await client.get("/healthz")).status_code == 200
        answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert (answer.json()["warm_up"], answer.json()["worker"]) == ("starting", "starting")


async def test_a_store_that_does_not_answer_is_not_ready(
    sqlite_served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise OSError("no route to host")

    services_of(sqlite_served.app).health.is_warm = True
    async with sqlite_served.client(None) as client:
        assert (await client.get("/readyz")).status_code == 200
        monkeypatch.setattr(sqlite_served.process.store, "check", fail)
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["store"]) == (503, "failing")
    assert "route" not in answer.text


class Writes:
    """Replaces the store's test of a write: counts its runs, and fails or hangs on request."""

    def __init__(self, served: ServedApp, patch: pytest.MonkeyPatch) -> None:
        self.tested, self.error = 0, StoreUnavailableError("lango.db: database or disk is full.")
        self.fails = self.hangs = False
        services_of(served.app).health.is_warm = True
        self._usual = served.process.store.check_writes
        patch.setattr(served.process.store, "check_writes", self)

    async def __call__(self) -> None:
        self.tested += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise self.error
        await self._usual()


@pytest.fixture
def writes(served: ServedApp, monkeypatch: pytest.MonkeyPatch) -> Writes:
    return Writes(served, monkeypatch)


async def test_a_store_that_takes_no_writes_is_not_ready(
    served: ServedApp,
    writes: Writes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "lango.server.health")
    monkeypatch.setattr(health, "WRITE_EVERY", 0.0)
    async with served.client(None) as client:
        assert (await client.get("/readyz")).status_code == 200
        writes.fails = True
        for _ in range(2):
            answer = await client.get("/readyz")
            assert (answer.status_code, answer.json()["store"]) == (503, "failing")
            assert "full" not in answer.text
        writes.fails = False
        assert (await client.get("/readyz")).status_code == 200
    assert [record.getMessage() for record in caplog.records] == [
        "The store takes no writes, so this server is not ready: "
        "lango.db: database or disk is full.",
        "The store takes writes again.",
    ]


async def test_probes_share_the_test_of_a_write(
    served: ServedApp, writes: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served.client(None) as client:
        answers = await asyncio.gather(*(client.get("/readyz") for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        writes.fails = True
        assert (await client.get("/readyz")).status_code == 200
        assert writes.tested == 1
        monkeypatch.setattr(health, "WRITE_EVERY", 0.0)
        assert (await client.get("/readyz")).status_code == 503
        assert writes.tested == 2


async def test_a_write_that_hangs_is_not_ready(
    served: ServedApp, writes: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "DATABASE_TIMEOUT", 0.2)
    writes.hangs = True
    async with asyncio.timeout(PATIENCE), served.client(None) as client:
        answers = await asyncio.gather(*(client.get("/readyz") for _ in range(5)))
    assert {answer.json()["store"] for answer in answers} == {"failing"}
    assert writes.tested == 1


async def test_a_full_disk_is_not_ready(tenant: str, tmp_path: Path) -> None:
    with small_disk() as disk:
        url = f"sqlite:///{disk.folder / 'lango.db'}"
        await migrate.upgrade(url)
        async with served_app(Workspace(url, "app", tmp_path), tenant) as opened:
            services_of(opened.app).health.is_warm = True
            disk.fill([os.getpid()])
            try:
                with suppress(StoreUnavailableError):
                    for _ in range(500):  # the log may have room left
                        await opened.process.store.check_writes()
                async with opened.client(None) as client:
                    answer = await client.get("/readyz")
            finally:
                disk.free()
    assert (answer.status_code, answer.json()["store"]) == (503, "failing")


async def test_newer_tables_that_serve_this_version_are_ready(
    sqlite_served: ServedApp, sqlite_url: str
) -> None:
    """Tables are upgraded before the servers: those must not all be taken out at once."""
    services_of(sqlite_served.app).health.is_warm = True
    await execute(sqlite_url, f"update {migrate.VERSION_TABLE} set version_num = '9999'")  # noqa: S608
    async with sqlite_served.client(None) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["store"]) == (200, "ok")


async def test_another_schema_is_not_ready(
    served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    services_of(served.app).health.is_warm = True
    monkeypatch.setattr("lango.store.schema.migrate.head", lambda: "next")
    async with served.client(None) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["store"]) == (503, "failing")
