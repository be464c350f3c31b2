"""Alive, and ready."""

from types import SimpleNamespace

import pytest

from lango.server.backend import services_of
from lango.store.revisions import OURS
from tests.server.places import House, live


async def test_a_server_that_is_warm_and_has_its_worker_is_ready(served: House) -> None:
    worker = served.worker()
    async with live(served, worker) as server, server.client(None) as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        answer = await client.get("/readyz")
        checks = {"server": "ok", "store": "ok", "worker": "ok", "warm_up": "ok"}
        assert (answer.status_code, answer.json()) == (200, {"ready": True, **checks})
        await worker.stop()
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["worker"]) == (503, "failing")


async def test_a_server_without_a_worker_needs_none(small: House) -> None:
    async with live(small) as server, server.client(None) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["worker"]) == (200, "none here")


async def test_a_server_that_begins_is_alive_and_not_ready(small: House) -> None:
    services_of(small.app).health.has_worker = True
    async with small.client(None) as client:
        assert (await client.get("/healthz")).status_code == 200
        answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert (answer.json()["warm_up"], answer.json()["worker"]) == ("starting", "starting")


async def test_a_store_that_does_not_answer_is_not_ready(
    small: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise OSError("no route to host")

    health = services_of(small.app).health
    health.is_warm = True
    async with small.client(None) as client:
        assert (await client.get("/readyz")).status_code == 200
        monkeypatch.setattr(small.here.store, "check", fail)
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["store"]) == (503, "failing")
    assert "route" not in answer.text


async def test_newer_tables_that_serve_this_version_are_ready(
    served: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables are upgraded before the servers: those must not all be taken out at once."""
    services_of(served.app).health.is_warm = True
    oldest = OURS.oldest_code(OURS.head)
    older = SimpleNamespace(head=oldest, knows={oldest}.__contains__)
    monkeypatch.setattr("lango.store.migrate.carried", older)
    async with served.client(None) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["store"]) == (200, "ok")


async def test_another_schema_is_not_ready(served: House, monkeypatch: pytest.MonkeyPatch) -> None:
    services_of(served.app).health.is_warm = True
    monkeypatch.setattr("lango.store.migrate.head", lambda: "next")
    async with served.client(None) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["store"]) == (503, "failing")
