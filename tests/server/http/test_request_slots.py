"""Slots of requests: few at a time, tenants take turns, and one that waits long keeps none."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace

import pytest

from faults.turns.place import Place
from lango.core.tenants import current_tenant
from lango.server.backend import services_of
from lango.server.http.request_slots import RequestSlots
from tests.server.places import House, house, live

SLOTS = 3
Work = Callable[[], Awaitable[object]]


async def _request(slots: RequestSlots, tenant: str, work: Work) -> None:
    current_tenant.set(tenant)
    async with slots.slot():
        await work()


async def _passes(number: int = 20) -> None:
    """Let every task that can run do so."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_tenant_waits_for_its_own_requests_and_not_for_anothers() -> None:
    slots, go, begun = RequestSlots(SLOTS, seconds=60), asyncio.Semaphore(0), list[str]()

    async def work() -> None:
        begun.append(current_tenant.get())
        await go.acquire()

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(_request(slots, "noisy", work))
        await _passes()
        assert begun == ["noisy"] * SLOTS
        group.create_task(_request(slots, "quiet", work))
        await _passes()
        go.release()
        go.release()
        await _passes()
        assert sorted(begun[SLOTS:]) == ["noisy", "quiet"]
        for _ in range(20):
            go.release()
    assert len(begun) == 11


async def test_a_request_that_waits_long_gives_its_slot_away() -> None:
    slots, go = RequestSlots(SLOTS, seconds=0.05), asyncio.Event()

    async def wait() -> None:
        await go.wait()

    stuck = [asyncio.create_task(_request(slots, "a", wait)) for _ in range(SLOTS)]
    await _passes()
    async with asyncio.timeout(5):
        await _request(slots, "a", _passes)
        go.set()
        await asyncio.gather(*stuck)
    assert await _how_many(slots) == SLOTS  # each was released once, not twice


async def test_a_request_that_fails_or_is_cancelled_releases_its_slot() -> None:
    slots = RequestSlots(1, seconds=60)

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await _request(slots, "a", fail)
    waiting = asyncio.create_task(_request(slots, "a", asyncio.Event().wait))
    await _passes()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await _how_many(slots) == 1


async def _how_many(slots: RequestSlots) -> int:
    """How many requests get a slot at the same time."""
    go, begun = asyncio.Event(), list[int]()

    async def work() -> None:
        begun.append(1)
        await go.wait()

    tasks = [asyncio.create_task(_request(slots, "a", work)) for _ in range(10)]
    await _passes()
    number = len(begun)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return number


def _one_slot(served: House) -> RequestSlots:
    slots = RequestSlots(1, seconds=60)
    served.app.state.services = replace(services_of(served.app), slots=slots)
    return slots


@pytest.mark.parametrize("path", ["/v1/me", "/v1/agents", "/v1/sessions", "/v1/usage"])
async def test_a_request_waits_for_a_slot(path: str, sqlite_place: Place, tenant: str) -> None:
    async with house(sqlite_place, tenant) as served, served.client() as client:
        slots = _one_slot(served)
        async with slots.slot():
            request = asyncio.create_task(client.get(path))
            await asyncio.sleep(0.2)
            assert not request.done()
            assert (await client.get("/healthz")).is_success  # a probe needs none
        assert (await request).is_success


async def test_what_waits_long_holds_no_slot(sqlite_place: Place, tenant: str) -> None:
    async with house(sqlite_place, tenant) as served, live(served) as server:
        session = await served.session()
        turn = await served.turn(session, "hi")  # it has no worker, so its stream stays open
        slots = _one_slot(served)
        more = asyncio.Event()

        async def body() -> AsyncGenerator[bytes]:
            yield b'{"app": '
            await more.wait()
            yield f'"{served.agent}"}}'.encode()

        async with server.client(content_type="application/json") as client:
            chat = {"model": served.agent, "messages": [{"role": "user", "content": "hi"}]}
            waits = asyncio.create_task(client.post("/openai/v1/chat/completions", json=chat))
            path, text = f"/v1/sessions/{session}/files?name=a.txt", {"content-type": "text/plain"}
            upload = asyncio.create_task(client.post(path, content=body(), headers=text))
            slow = asyncio.create_task(client.post("/v1/sessions", content=body()))
            async with client.stream("GET", f"/v1/turns/{turn}/events") as stream:
                await anext(stream.aiter_bytes())
                async with asyncio.timeout(5):
                    assert (await client.get("/v1/me")).is_success
            more.set()
            assert [(await slow).status_code, (await upload).status_code] == [201, 201]
            waits.cancel()
        assert await _how_many(slots) == 1
