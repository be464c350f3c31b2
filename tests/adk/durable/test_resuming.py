"""Turns that lose their worker at the worst moments, each with what puts it right."""

import asyncio
from collections.abc import Callable

import pytest
from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    SequentialAgent,  # pyright: ignore[reportDeprecated]  # people have them
)
from google.adk.agents.invocation_context import InvocationContext
from google.adk.apps.app import App
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions.session import Session
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from faults.recovery.kill_shapes import agent, tool
from lango.adk.apps.load import Root
from lango.adk.sessions.service import SessionServiceAdapter
from lango.errors import Fenced
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.submit import SqlTurnStore
from lango.testing.kill_checks import Snapshot, snapshot
from lango.testing.kill_trials import APP, USER, Sweep, run_turns
from tests.adk.durable.dying import cut_off, new_key, resumed, sweep_of, undisturbed

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")

CALL = ([("t1", {"k": "a"})], "done")

# What is killed, where, how often that point is passed before, and the end of the id of the event
# that must have been written in the dead worker's place ("" if none may be).
REPAIRS = (".end", ".confirm", ".asked")
DEATHS = [
    ("tools", "append.after", 1, ""),  # its message is stored, and nothing else
    ("tools", "model.delta", 2, ""),
    ("tools", "append.after", 2, ""),  # the call is stored, its tool never began
    ("tools", "ledger.start.after", 1, ""),
    ("tools", "tool.effect", 1, ""),
    ("tools", "ledger.finish.after", 1, ""),  # the tool has finished, its response is lost
    ("tools", "append.after", 6, ""),  # the answer is stored: only the close is left
    ("tools that run once", "ledger.finish.after", 1, ""),
    ("parallel tools", "ledger.finish.after", 3, ""),
    ("transfer and back", "append.after", 3, ".end"),
    ("sequence", "append.after", 5, ".end"),
    ("sequence", "append.after", 6, ""),
    ("loop", "append.after", 5, ".end"),
    ("confirmation", "append.after", 3, ".confirm"),
    ("confirmation", "tool.before_effect", 1, ""),
    ("long-running", "append.after", 4, ""),
    ("long-running", "ledger.finish.after", 2, ""),
    ("artifacts", "artifact.after", 1, ""),
    ("agent as tool", "append.after", 5, ""),
    ("agent as tool", "ledger.finish.after", 1, ""),
    ("confirmation in sequence", "append.after", 9, ".asked"),  # asked, its call not answered
    ("agent callbacks", "append.after", 2, ""),  # the before callback has run
    ("agent callbacks", "append.after", 6, ""),  # the agent has ended, its after callback not run
    ("callbacks of containers", "append.after", 2, ""),  # a before callback changed state alone
    ("skip_summarization", "append.after", 3, ""),
    ("workflow", "ledger.finish.after", 1, ""),
    ("workflow", "tool.effect", 2, ""),
]


@pytest.mark.parametrize(("shape", "point", "times", "written"), DEATHS)
async def test_a_turn_goes_on_as_if_nothing_had_happened(
    shape: str, point: str, times: int, written: str, sqlite_url: str
) -> None:
    sweep, key = sweep_of(shape, sqlite_url), new_key()
    clean = await undisturbed(sweep)
    dead = await cut_off(sweep, key, point, times)
    after = await resumed(sweep, key, dead)
    assert after.history == clean.history
    assert (after.state, after.user_state) == (clean.state, clean.user_state)
    assert (after.turns, after.artifacts, after.gaps) == (clean.turns, clean.artifacts, False)
    assert _unanswered(after) == _unanswered(clean)
    session = await _session(sweep.url, key)
    repairs = {end for event in session.events for end in REPAIRS if event.id.endswith(end)}
    assert repairs == ({written} if written else set())


async def _session(url: str, key: SessionKey) -> Session:
    service = SessionServiceAdapter(url, tenant=key.tenant, token_budget=None)
    session = await service.get_session(app_name=APP, user_id=USER, session_id=key.session_id)
    await service.close()
    assert session
    return session


def _unanswered(shot: Snapshot) -> int:
    return (shot.calls - shot.responses).total()


@pytest.mark.parametrize(
    ("shape", "is_stored"), [("tools", False), ("agent callbacks", True), ("sequence", True)]
)
async def test_a_lone_agent_stores_no_end_mark(
    shape: str, is_stored: bool, sqlite_url: str
) -> None:
    sweep, key = sweep_of(shape, sqlite_url), new_key()
    await run_turns(sweep, key, f"worker-{key.tenant}", ())
    session = await _session(sqlite_url, key)
    assert any(event.actions.end_of_agent for event in session.events) == is_stored


class _AnswersFirst(BasePlugin):
    """Answers in the agent's place."""

    async def before_run_callback(
        self, *, invocation_context: InvocationContext
    ) -> types.Content | None:
        del invocation_context
        return types.Content(role="model", parts=[types.Part(text="closed today")])


def _with_plugin() -> App:
    plugin = _AnswersFirst(name="answers_first")
    return App(name=APP, root_agent=agent("root", "hello"), plugins=[plugin])


def _sequence_of(*names: str) -> BaseAgent:
    agents: list[BaseAgent] = [agent(name, name.upper()) for name in names]
    return SequentialAgent(name="root", sub_agents=agents)  # pyright: ignore[reportDeprecated]


@pytest.mark.parametrize(
    ("before", "after", "times"),
    [
        (_with_plugin, _with_plugin, 2),  # ADK names the author of a plugin's answer "model"
        (lambda: agent("root", "hello"), lambda: agent("renamed", "hello"), 2),
        (lambda: _sequence_of("a", "b"), lambda: _sequence_of("b"), 3),
    ],
    ids=["plugin", "renamed root", "removed sub-agent"],
)
async def test_an_end_of_an_agent_that_is_not_in_the_tree(
    before: Callable[[], Root], after: Callable[[], Root], times: int, sqlite_url: str
) -> None:
    key, texts = new_key(), ["TURN one"]
    dead = await cut_off(Sweep(before, texts, sqlite_url), key, "append.after", times)
    assert (await resumed(Sweep(after, texts, sqlite_url), key, dead)).turns == ("completed",)


async def test_a_tool_that_may_run_once_is_reported_as_unknown(store_url: str) -> None:
    sweep, key = sweep_of("tools that run once", store_url), new_key()
    dead = await cut_off(sweep, key, "tool.effect")
    after = await resumed(sweep, key, dead)
    assert after.has_unknown
    assert after.turns == ("completed", "completed")
    assert after.calls == after.responses


async def test_deaths_during_the_recovery(store_url: str) -> None:
    sweep, key = sweep_of("tools", store_url), new_key()
    clean = await undisturbed(sweep)
    first = await cut_off(sweep, key, "ledger.start.after")
    second = await cut_off(sweep, key, "ledger.finish.before", dead=[first])
    third = await cut_off(sweep, key, "append.after", dead=[first, second])
    after = await resumed(sweep, key, first, second, third)
    assert (after.history, after.state) == (clean.history, clean.state)


async def test_a_workflow_dies_again_once_it_has_noted_where_it_stands(store_url: str) -> None:
    sweep, key = sweep_of("workflow", store_url), new_key()
    clean = await undisturbed(sweep)
    first = await cut_off(sweep, key, "append.after", 9)  # the call is stored, its tool never ran
    second = await cut_off(sweep, key, "append.after", 2, dead=[first])
    after = await resumed(sweep, key, first, second)
    assert (after.history, after.state) == (clean.history, clean.state)


def slow_agent(began: asyncio.Event, go: asyncio.Event, name: str = "root") -> LlmAgent:
    """Its tool waits the first time it runs."""

    async def slow(k: str) -> dict[str, str]:
        """Take a while."""
        if not began.is_set():
            began.set()
            await go.wait()
        return {"ok": k}

    slow.idempotent = True  # pyright: ignore[reportFunctionMemberAccess]
    return agent(name, [("slow", {"k": "a"})], "done", tools=[slow])


@pytest.mark.parametrize("in_child", [False, True])
async def test_a_worker_that_lost_its_turn_can_write_nothing(
    store_url: str, in_child: bool
) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    def make() -> LlmAgent:
        if not in_child:
            return slow_agent(began, go)
        helper = AgentTool(slow_agent(began, go, "helper"))
        return agent("root", [("helper", {"request": "TURN inner"})], "done", tools=[helper])

    sweep, key = Sweep(make, ["TURN one"], store_url), new_key()
    zombie = asyncio.create_task(run_turns(sweep, key, f"slow-{key.tenant}", ()))
    await began.wait()
    after = await resumed(sweep, key, f"slow-{key.tenant}")
    go.set()
    with pytest.raises(Fenced):
        await zombie
    assert (await snapshot(store_url, key)).rows == after.rows
    assert after.turns == ("completed",)


async def test_a_shape_that_cannot_be_resumed_fails_with_a_valid_history(store_url: str) -> None:
    def make() -> BaseAgent:
        inner = SequentialAgent(  # pyright: ignore[reportDeprecated]
            name="inner", sub_agents=[agent("a", [("t1", {"k": "a"})], "A", tools=[tool("t1")])]
        )
        step = [("transfer_to_agent", {"agent_name": "inner"})]
        return agent("root", step, "end", sub_agents=[inner])

    sweep, key = Sweep(make, ["TURN one"], store_url), new_key()
    dead = await cut_off(sweep, key, "tool.effect")
    after = await resumed(sweep, key, dead)
    assert after.turns == ("failed",)
    assert after.calls == after.responses
    assert await error_of(store_url, key) == "NotResumableError"


async def test_a_changed_agent_goes_on_if_it_has_all_that_the_turn_needs(store_url: str) -> None:
    key = new_key()
    old = Sweep(lambda: agent("root", *CALL, tools=[tool("t1")]), ["TURN one"], store_url)
    more = Sweep(
        lambda: agent("root", *CALL, tools=[tool("t1"), tool("t2")]), ["TURN one"], store_url
    )
    dead = await cut_off(old, key, "append.after", 2)
    assert (await resumed(more, key, dead)).turns == ("completed",)


async def test_an_agent_that_lacks_an_open_tool_fails_the_turn(store_url: str) -> None:
    key = new_key()
    old = Sweep(lambda: agent("root", *CALL, tools=[tool("t1")]), ["TURN one"], store_url)
    other = Sweep(lambda: agent("root", *CALL, tools=[tool("t2")]), ["TURN one"], store_url)
    dead = await cut_off(old, key, "append.after", 2)
    after = await resumed(other, key, dead)
    assert (after.turns, after.calls) == (("failed",), after.responses)
    assert await error_of(store_url, key) == "AgentChangedError"


@pytest.mark.parametrize("point", ["turn.start", "append.before", "append.after"])
async def test_the_turn_fails_also_if_the_worker_that_detects_it_dies(
    point: str, store_url: str
) -> None:
    """Before it looks at the history, before it closes it, and before it closes the turn."""
    key = new_key()
    old = Sweep(lambda: agent("root", *CALL, tools=[tool("t1")]), ["TURN one"], store_url)
    other = Sweep(lambda: agent("root", *CALL, tools=[tool("t2")]), ["TURN one"], store_url)
    first = await cut_off(old, key, "append.after", 2)
    second = await cut_off(other, key, point, dead=[first])
    after = await resumed(other, key, first, second)
    assert (after.turns, after.calls) == (("failed",), after.responses)
    assert await error_of(store_url, key) == "AgentChangedError"


async def error_of(url: str, key: SessionKey) -> str:
    store = SqlSessionStore(url)
    (turn,) = await SqlTurnStore(store.database).of_session(key)
    await store.close()
    assert turn.error
    return turn.error["type"]


async def test_deleting_a_session_deletes_its_child_sessions(store_url: str) -> None:
    sweep, key = sweep_of("agent as tool", store_url), new_key()
    await run_turns(sweep, key, f"worker-{key.tenant}", ())
    assert len((await snapshot(store_url, key)).history) == 2
    service = SessionServiceAdapter(store_url, tenant=key.tenant)
    listed = await service.list_sessions(app_name=APP, user_id=USER)
    assert [session.id for session in listed.sessions] == [key.session_id]
    await service.delete_session(app_name=APP, user_id=USER, session_id=key.session_id)
    await service.close()
    assert (await snapshot(store_url, key)).history == ()
