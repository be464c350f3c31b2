"""Sessions that are deleted, and made anew under the same name, while a worker has their turn."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from faults.recovery.kill_shapes import agent
from lango.adk.durable.claimed.memory import ClaimedMemory
from lango.adk.durable.run import DurableAgent
from lango.adk.memory import SqlMemoryService
from lango.errors import Fenced, SessionExistsError, SessionNotFoundError
from lango.store.sessions.entries import SessionKey, StateChange
from lango.store.turns.claimed_writes import ClaimedWrites
from lango.store.turns.rows import Claim
from lango.testing.kill_checks import snapshot
from lango.testing.kill_trials import APP, Sweep, durable_agent
from tests.adk.durable.dying import new_key
from tests.adk.durable.test_resuming import slow_agent
from tests.store.turns.turn_stores import TurnStores, opened

SECRET = "TURN the old conversation"
GREETING = "TURN a new conversation"


async def claimed(stores: TurnStores, key: SessionKey, text: str) -> Claim:
    """A new session of that name with a turn, and the claim that a new worker has on it."""
    ref = await stores.session(key)
    await stores.submit(key, text)
    return await stores.claim(ref.pk, await stores.worker(APP))


async def run(durable: DurableAgent, claim: Claim) -> None:
    async with aclosing(durable.run(claim)) as events:
        async for _ in events:
            pass


@asynccontextmanager
async def made_anew(stores: TurnStores, key: SessionKey) -> AsyncGenerator[Claim]:
    """Delete the session and begin another of its name, which must stay as it is."""
    await stores.sessions.delete(key)
    new = await claimed(stores, key, GREETING)
    before = await snapshot(stores.url, key)
    yield new
    assert await snapshot(stores.url, key) == before
    assert (await stores.sessions.summary(key)).message_count == 0


async def test_a_worker_that_wakes_before_its_first_look_writes_nothing(store_url: str) -> None:
    """Both claims have the same epoch: it is the session's primary key that tells them apart."""
    key = new_key()
    sweep = Sweep(lambda: agent("root", [], "done"), [SECRET], store_url)
    async with opened(store_url) as stores:
        durable = durable_agent(sweep, stores.sessions, key)
        old = await claimed(stores, key, SECRET)
        async with made_anew(stores, key) as new:
            assert (old.epoch, old.turn.session_pk != new.turn.session_pk) == (new.epoch, True)
            with pytest.raises(Fenced):
                await run(durable, old)


@pytest.mark.parametrize("in_child", [False, True])
async def test_a_worker_that_wakes_in_its_tool_writes_nothing(
    store_url: str, in_child: bool
) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    def make() -> LlmAgent:
        if not in_child:
            return slow_agent(began, go)
        helper = AgentTool(slow_agent(began, go, "helper"))
        return agent("root", [("helper", {"request": "TURN inner"})], "done", tools=[helper])

    key = new_key()
    async with opened(store_url) as stores:
        durable = durable_agent(Sweep(make, [SECRET], store_url), stores.sessions, key)
        old = await claimed(stores, key, SECRET)
        zombie = asyncio.create_task(run(durable, old))
        await began.wait()
        async with made_anew(stores, key):
            go.set()
            with pytest.raises(Fenced):
                await zombie


async def test_a_worker_that_wakes_adds_no_memory_of_a_deleted_user(store_url: str) -> None:
    """What a tool adds to the memory belongs to the user, and not to the session of its turn."""
    key = new_key()
    of_user: dict[str, Any] = {"app_name": key.app_name, "user_id": key.user_id}
    fact = MemoryEntry(content=types.Content(parts=[types.Part(text=SECRET)]))
    async with opened(store_url) as stores:
        service = SqlMemoryService(stores.sessions, tenant=key.tenant)
        memory = ClaimedMemory(service, await claimed(stores, key, SECRET))
        await memory.add_memory(**of_user, memories=[fact])
        assert len((await memory.search_memory(**of_user, query=SECRET)).memories) == 1
        deleted = await stores.sessions.delete_user(key.tenant, key.user_id, key.app_name)
        assert (deleted.sessions, deleted.memories) == (1, 1)
        with pytest.raises(SessionNotFoundError):
            await memory.add_memory(**of_user, memories=[fact])
        assert (await memory.search_memory(**of_user, query=SECRET)).memories == []


async def test_a_child_session_is_never_one_that_was_there_before(store_url: str) -> None:
    key = new_key()
    child = SessionKey(key.tenant, key.app_name, key.user_id, "taken")
    async with opened(store_url) as stores:
        await stores.session(child)
        claim = await claimed(stores, key, SECRET)
        with pytest.raises(SessionExistsError):
            await ClaimedWrites(stores.sessions.database, claim).open_child(child, StateChange())
