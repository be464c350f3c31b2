"""The agent one talks to: made of keywords or of ADK's parts, in memory or on a database."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.workflow import START, Workflow

from lango.adk.apps.build import llm_agent
from lango.adk.models.adapter import ModelAdapter
from lango.adk.plugins.transfer import TransferGuardPlugin
from lango.agent.agent import Agent
from lango.core.turns.events import (
    Cancelled,
    Completed,
    Failed,
    MessageDelta,
    ToolFinished,
    TurnEvent,
)
from lango.errors import AgentNotFoundError, ApprovalNeededError
from lango.store.sessions.store import SqlSessionStore
from lango.testing import ScriptedProvider
from lango.testing.wires import WireServer
from lango.tools.function import tool
from tests.adk.runner.turns import Script, agent, call, kinds, said, transfer


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(require_confirmation=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def told(events: Any) -> list[TurnEvent]:
    return [event async for event in events]


# --- what it is made of ----------------------------------------------------------------------


async def test_keywords_make_an_agent() -> None:
    async with Agent(model="scripted:demo", tools=[add]) as made:
        assert await made.run_and_collect("hi") == "You said: hi"
        assert "5" in await made.run_and_collect('call add {"a": 2, "b": 3}')
        assert made.root.name == "agent"


async def test_the_instruction_reaches_the_model() -> None:
    provider = ScriptedProvider()
    async with Agent(model=provider, name="clerk", instruction="Be brief.") as made:
        await made.run_and_collect("hi")
    system = provider.requests[0].messages[0]
    assert system.role == "system"
    assert "Be brief." in system.content


async def test_agents_can_be_sub_agents() -> None:
    helper = Agent(model=ScriptedProvider(["I help."]), name="helper")
    provider = ScriptedProvider([transfer("helper")])
    async with Agent(model=provider, name="root", sub_agents=[helper]) as made:
        assert await made.run_and_collect("hi") == "I help."


def shout(node_input: str) -> str:
    """Say it louder."""
    return node_input.upper()


@pytest.mark.parametrize(
    "root",
    [
        agent("root", "Hello."),
        App(name="mine", root_agent=agent("root", "Hello.")),
        LlmAgent(name="root", model=ModelAdapter(ScriptedProvider(["Hello."]), "demo")),
        Workflow(name="root", edges=[(START, shout, agent("writer", "Hello."))]),
    ],
    ids=["agent", "app", "llm agent", "workflow"],
)
async def test_what_adk_has_is_run_as_it_is(root: Any) -> None:
    async with Agent(root) as made:
        assert await made.run_and_collect("hi") == "Hello."


def measured(node_input: str) -> dict[str, int]:
    """How long it is."""
    return {"length": len(node_input)}


@pytest.mark.parametrize(
    ("last", "answer"),
    [((shout,), "HI"), ((shout, measured), '{"length":2}')],
    ids=["text", "object"],
)
async def test_the_output_of_a_workflow_is_its_answer(last: Any, answer: str) -> None:
    async with Agent(Workflow(name="root", edges=[(START, *last)])) as made:
        assert await made.run_and_collect("hi") == answer


@pytest.mark.parametrize("given", [{}, {"root": agent("root"), "model": "scripted:demo"}])
def test_it_is_made_of_one_thing(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="give one of the two"):
        Agent(**given)


# --- where it remembers ----------------------------------------------------------------------


async def test_without_a_store_it_remembers_in_memory() -> None:
    script = Script("one", "two", "three")
    async with Agent(script.agent("root")) as made:
        await made.run_and_collect("first")
        await made.run_and_collect("second")
        await made.run_and_collect("elsewhere", session="other")
    counts = [len([m for m in request.messages if m.role == "user"]) for request in script.requests]
    assert counts == [1, 2, 1]


async def test_with_a_store_another_agent_remembers(store_url: str, tenant: str) -> None:
    async with Agent(agent("root", "one"), store=store_url, tenant=tenant) as first:
        await first.run_and_collect("first")
    script = Script("two")
    async with Agent(script.agent("root"), store=store_url, tenant=tenant) as second:
        await second.run_and_collect("second")
    assert [m.content for m in script.requests[0].messages][1:] == ["first", "one", "second"]
    stranger = Script("three")
    async with Agent(stranger.agent("root"), store=store_url, tenant=f"{tenant}-2") as third:
        await third.run_and_collect("third")
    assert [m.content for m in stranger.requests[0].messages][1:] == ["third"]


async def test_a_model_given_by_its_name_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with WireServer("openai_chat") as server:
        monkeypatch.setenv("VLLM_BASE_URL", server.url)
        async with Agent(model="vllm:some-model") as made:
            assert await made.run_and_collect("hi") == "Hello."
            assert server.connections == 1
        async with asyncio.timeout(10):
            await server.left()


async def test_a_store_that_was_given_stays_open(sqlite_url: str) -> None:
    async with SqlSessionStore(sqlite_url) as store:
        for text in ("one", "two"):
            async with Agent(agent("root", text), store=store) as made:
                assert await made.run_and_collect("hi") == text


async def test_model_calls_are_recorded_with_the_session(sqlite_url: str) -> None:
    async with SqlSessionStore(sqlite_url) as store:
        async with Agent(agent("root", "one"), store=store) as made:
            await made.run_and_collect("hi")
        async with store.database.snapshot() as connection:
            count = await connection.exec_driver_sql("select count(*) from model_calls")
            assert count.scalar_one() == 1


# --- what it does ----------------------------------------------------------------------------


async def test_the_usual_plugins_guard_transfers() -> None:
    root = agent("root", transfer("ghost"), "Then I answer.", sub_agents=[agent("helper")])
    async with Agent(root) as made:
        events = await told(made.stream("hi"))
    assert kinds(events).count("started") == 1
    assert said(events) == [("root", "Then I answer.")]


async def test_streaming_corrects_without_them() -> None:
    root = agent("root", transfer("ghost"), "Then I answer.", sub_agents=[agent("helper")])
    async with Agent(root, plugins=[]) as made:
        events = await told(made.stream("hi"))
    assert kinds(events).count("started") == 2
    assert isinstance(events[-1], Completed)


async def test_an_apps_own_guard_is_enough() -> None:
    app = App(name="mine", root_agent=agent("root", "fine"), plugins=[TransferGuardPlugin()])
    async with Agent(app) as made:
        assert await made.run_and_collect("hi") == "fine"


async def test_both_tries_failing_is_an_error() -> None:
    root = agent("root", transfer("a"), transfer("b"), sub_agents=[agent("helper")])
    async with Agent(root, plugins=[]) as made:
        with pytest.raises(AgentNotFoundError, match="failed to find agent: b"):
            await made.run_and_collect("hi")


async def test_an_approval_by_hand() -> None:
    async with Agent(agent_that_pays("Paid.")) as made:
        with pytest.raises(ApprovalNeededError) as caught:
            await made.run_and_collect("hi")
        [approval] = caught.value.approvals
        assert await made.pending() == [approval]
        assert await made.run_and_collect([approval.answer(True)]) == "Paid."
        assert await made.pending() == []


def agent_that_pays(*then: str) -> LlmAgent:
    provider = ScriptedProvider([call("pay", amount=3), *then])
    return llm_agent("payer", provider, tools=[pay])


async def test_an_approval_after_a_restart(store_url: str, tenant: str) -> None:
    async with Agent(agent_that_pays(), store=store_url, tenant=tenant) as first:
        await told(first.stream("hi"))
    root = agent_that_pays()
    async with Agent(root, store=store_url, tenant=tenant) as second:
        [approval] = await second.pending()
        events = await told(second.answer([approval.answer(True)]))
    results = [event.result for event in events if isinstance(event, ToolFinished)]
    assert results == [{"result": "paid 3"}]


async def test_a_session_that_is_not_there_waits_for_nothing() -> None:
    async with Agent(model="scripted:demo") as made:
        assert await made.pending(session="unheard of") == []
        events = await told(made.answer([]))
        assert isinstance(events[-1], Failed)


async def test_a_stream_is_ended_by_its_abort() -> None:
    abort = asyncio.Event()
    async with Agent(agent("root", "one two three four five six")) as made:
        events: list[TurnEvent] = []
        async for event in made.stream("hi", abort=abort):
            events.append(event)
            if isinstance(event, MessageDelta):
                abort.set()
    assert isinstance(events[-1], Cancelled)
    assert events[-1].text.startswith("one")


async def test_the_root_answers_each_turn_if_it_should() -> None:
    helper = agent("helper", "I help.")
    root = agent("root", transfer("helper"), "I am back.", sub_agents=[helper])
    async with Agent(root, next_turn="root") as made:
        assert await made.run_and_collect("hi") == "I help."
        assert await made.run_and_collect("hi") == "I am back."


# --- before the first turn -------------------------------------------------------------------

WARMED = """
import asyncio, json, sys
from lango.adk.apps.preload import warm_up
from lango.agent.agent import Agent

async def main():
    agent = Agent(model="scripted:demo")
    await warm_up()
    known = set(sys.modules)
    assert await agent.run_and_collect("hi") == "You said: hi"
    print(json.dumps(sorted(set(sys.modules) - known)))

asyncio.run(main())
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


def test_after_a_warm_up_the_first_turn_imports_nothing() -> None:
    assert json.loads(run(WARMED)) == []


GROWN = """
import asyncio, gc
from lango.adk.apps.preload import warm_up

asyncio.run(warm_up())
before = gc.get_stats()[2]["collections"]
waiting = [[number] for number in range(500_000)]
print(gc.get_stats()[2]["collections"] - before)
"""


def test_after_a_warm_up_much_that_is_held_is_not_walked_over_again_and_again() -> None:
    assert run(GROWN) == "0\n"


COUNTED = """
import asyncio, builtins
from lango.agent.agent import Agent

async def main():
    agent = Agent(model="scripted:demo")
    await agent.run_and_collect("hi")
    failed = []
    real = builtins.__import__
    def counting(name, *args, **kwargs):
        try:
            return real(name, *args, **kwargs)
        except ModuleNotFoundError:
            failed.append(name)
            raise
    builtins.__import__ = counting
    await agent.run_and_collect("hi")
    builtins.__import__ = real
    print(failed)
    try:
        from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
    except ImportError as error:
        print(error)
    else:
        print("google-adk[a2a] is there")

asyncio.run(main())
"""


def test_a_missing_a2a_is_not_looked_for_in_every_turn() -> None:
    failed, explained = run(COUNTED).splitlines()
    assert failed == "[]"
    assert "google-adk[a2a]" in explained
