"""Slots of requests: few at a time, tenants take turns, and one that waits long keeps none.

A server that several tenants use gives each one slot, and more only while its loop keeps up.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.turns.workspace import Workspace
from lango.core.current import current_tenant
from lango.server.backend import services_of
from lango.server.http import request_slots
from lango.server.http.request_slots import RequestSlots
from tests.server.served_apps import PATIENCE, ServedApp, live, served_app

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
        assert begun[SLOTS] == "quiet"
        for _ in range(20):
            go.release()
    assert len(begun) == 11


class Requests:
    """Requests that run until they are let go, and how many of each tenant run."""

    def __init__(self, slots: RequestSlots) -> None:
        self.running: Counter[str] = Counter()
        self.most = 0  # that ran at a time
        self.full = asyncio.Event()
        self.go = asyncio.Semaphore(0)
        self.slots = slots

    async def run(self, tenant: str) -> None:
        """Run a request of a tenant."""
        await _request(self.slots, tenant, self._work)

    async def _work(self) -> None:
        tenant = current_tenant.get()
        self.running[tenant] += 1
        self.most = max(self.most, self.running.total())
        if self.most == SLOTS:
            self.full.set()
        try:
            await self.go.acquire()
        finally:
            self.running[tenant] -= 1


async def test_a_tenant_has_one_slot_beside_others_if_the_loop_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_slots, "LATE", -math.inf)
    requests = Requests(RequestSlots(2 * SLOTS, seconds=60))
    async with asyncio.TaskGroup() as group:
        for tenant in ("noisy", "quiet", "noisy", *["noisy"] * 8):
            group.create_task(requests.run(tenant))
        await _passes()
        assert requests.running == {"noisy": 2, "quiet": 1}  # the loop was not measured before
        for _ in range(3):
            requests.go.release()
        for _ in range(8):
            await asyncio.sleep(request_slots.MEASURE_EVERY)
            await _passes()
            assert requests.running == {"noisy": 1, "quiet": 0}
            requests.go.release()


async def test_a_tenant_has_more_slots_beside_others_while_the_loop_keeps_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_slots, "LATE", math.inf)
    requests = Requests(RequestSlots(SLOTS + 1, seconds=60))
    async with asyncio.TaskGroup() as group, asyncio.timeout(PATIENCE):
        for tenant in ("quiet", *["noisy"] * 8):
            group.create_task(requests.run(tenant))
        await requests.full.wait()
        assert requests.running == {"noisy": SLOTS - 1, "quiet": 1}
        for _ in range(9):
            requests.go.release()


async def test_a_tenant_gets_the_slot_that_another_releases_while_the_loop_keeps_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_slots, "LATE", math.inf)
    slots, ends = RequestSlots(SLOTS + 1, seconds=60), asyncio.Event()
    async with asyncio.TaskGroup() as group, asyncio.timeout(PATIENCE):
        group.create_task(_request(slots, "quiet", ends.wait))
        requests = Requests(slots)
        for _ in range(SLOTS - 1):
            group.create_task(requests.run("noisy"))
        await asyncio.sleep(5 * request_slots.MEASURE_EVERY)
        group.create_task(requests.run("noisy"))
        await asyncio.sleep(5 * request_slots.MEASURE_EVERY)
        assert requests.running["noisy"] == SLOTS - 1
        ends.set()
        await requests.full.wait()
        for _ in range(SLOTS):
            requests.go.release()


async def test_the_last_slot_is_for_a_tenant_that_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_slots, "LATE", math.inf)
    requests = Requests(RequestSlots(SLOTS, seconds=60))
    async with asyncio.TaskGroup() as group, asyncio.timeout(PATIENCE):
        quiet = group.create_task(requests.run("quiet"))
        for _ in range(SLOTS + 2):
            group.create_task(requests.run("noisy"))
        await _passes()
        requests.go.release()  # the first to wait for it is the quiet one
        await quiet
        await asyncio.sleep(5 * request_slots.MEASURE_EVERY)
        assert requests.running["noisy"] == SLOTS - 1
        group.create_task(requests.run("quiet"))
        await _passes()
        assert requests.running["quiet"] == 1
        for _ in range(SLOTS + 3):
            requests.go.release()


@settings(max_examples=60)
@given(
    steps=st.lists(st.sampled_from(["a", "b", "c", "end", "cancel", "wait"]), max_size=40),
    late=st.sampled_from([-math.inf, math.inf]),
)
def test_no_slot_is_lost_or_given_twice(steps: list[str], late: float) -> None:
    async def check() -> None:
        requests, tasks = Requests(RequestSlots(SLOTS, seconds=60)), list[asyncio.Task[None]]()
        for step in steps:
            if step == "end":
                requests.go.release()
            elif step == "wait":
                await asyncio.sleep(request_slots.MEASURE_EVERY)
            elif step == "cancel" and tasks:
                tasks[len(tasks) // 2].cancel()
            elif step != "cancel":
                tasks.append(asyncio.create_task(requests.run(step)))
            await _passes(len(steps) % 3)
        for _ in tasks:
            requests.go.release()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*tasks, return_exceptions=True)
        assert requests.most <= SLOTS
        assert await _how_many(requests.slots) == SLOTS

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_slots, "LATE", late)
        patch.setattr(request_slots, "SHARED", 0.2)
        asyncio.run(check())


async def test_a_request_that_waits_long_gives_its_slot_away() -> None:
    slots, go = RequestSlots(SLOTS, seconds=0.05), asyncio.Event()

    async def wait() -> None:
        await go.wait()

    stuck = [asyncio.create_task(_request(slots, "a", wait)) for _ in range(SLOTS)]
    await _passes()
    async with asyncio.timeout(PATIENCE):
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
    """How many requests get a slot at the same time.

    Not by `slot`, whose timer could release some of them while they are counted.
    """

    async def take(tenant: str) -> str:
        current_tenant.set(tenant)
        return await slots.take()

    tasks = [asyncio.create_task(take(f"tenant {n}")) for n in range(10)]
    await _passes()
    taken = [task.result() for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for tenant in taken:
        slots.release(tenant)
    return len(taken)


def _one_slot(served: ServedApp) -> RequestSlots:
    slots = RequestSlots(1, seconds=60)
    served.app.state.services = replace(services_of(served.app), slots=slots)
    return slots


@pytest.mark.parametrize("path", ["/v1/me", "/v1/agents", "/v1/sessions", "/v1/usage"])
async def test_a_request_waits_for_a_slot(
    path: str, sqlite_workspace: Workspace, tenant: str
) -> None:
    async with served_app(sqlite_workspace, tenant) as served, served.client() as client:
        slots = _one_slot(served)
        async with slots.slot():
            request = asyncio.create_task(client.get(path))
            await asyncio.sleep(0.2)
            assert not request.done()
            assert (await client.get("/healthz")).is_success  # a probe needs none
        assert (await request).is_success


async def test_what_waits_long_holds_no_slot(sqlite_workspace: Workspace, tenant: str) -> None:
    async with served_app(sqlite_workspace, tenant) as served, live(served) as server:
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
                async with asyncio.timeout(30):  # less than a slot is held
                    assert (await client.get("/v1/me")).is_success
            more.set()
            assert [(await slow).status_code, (await upload).status_code] == [201, 201]
            waits.cancel()
        assert await _how_many(slots) == 1
