"""Agents that run as tools: what they do to state and artifacts is done to their caller's."""

from collections.abc import AsyncGenerator

import pytest
from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from faults.recovery.kill_shapes import agent, tool
from lango.adk.sessions.service import SessionServiceAdapter
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from lango.testing.kill_trials import Sweep, run_turns
from tests.adk.durable.dying import cut_off, new_key, resumed, undisturbed


class Noting(BaseAgent):
    """An agent of a user's own, whose last event only changes state."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        says = types.ModelContent("noted")
        for content, note in ((says, "one"), (None, "two")):
            actions = EventActions(state_delta={"note": note})
            yield Event(
                invocation_id=ctx.invocation_id, author=self.name, content=content, actions=actions
            )


def _caller(called: BaseAgent) -> LlmAgent:
    ask = [(called.name, {"request": "TURN inner"})]
    return agent("root", ask, "done", tools=[AgentTool(called)])


async def test_an_event_that_only_changes_state_counts(sqlite_url: str) -> None:
    shot = await undisturbed(
        Sweep(lambda: _caller(Noting(name="noting")), ["TURN one"], sqlite_url)
    )
    assert (shot.turns, shot.state["note"]) == (("completed",), "two")


def _drawing() -> LlmAgent:
    tools = [tool("draw", idempotent=True, artifact=True, state="drawn")]
    return _caller(agent("helper", [("draw", {"k": "a"})], "drawn", tools=tools))


async def _deltas(url: str, key: SessionKey) -> list[tuple[dict[str, int], dict[str, str]]]:
    """What the caller's events say that was done to artifacts and state."""
    store = SqlSessionStore(url, pool_size=1)
    try:
        session = await SessionServiceAdapter(store, tenant=key.tenant).get_session(
            app_name=key.app_name, user_id=key.user_id, session_id=key.session_id
        )
    finally:
        await store.close()
    actions = [event.actions for event in session.events] if session else []
    return [(each.artifact_delta, each.state_delta) for each in actions]


@pytest.mark.parametrize(
    ("point", "times"), [("ledger.finish.after", 1), *(("append.after", n) for n in (4, 5, 6))]
)
async def test_what_it_saved_before_a_kill_is_its_caller_s(
    point: str, times: int, sqlite_url: str
) -> None:
    sweep, clean, key = Sweep(_drawing, ["TURN one"], sqlite_url), new_key(), new_key()
    await run_turns(sweep, clean, f"worker-{clean.tenant}", ())
    expected = await _deltas(sqlite_url, clean)
    assert ({"notes.txt": 0}, {"drawn": "a", "user:drawn": "a"}) in expected
    dead = await cut_off(sweep, key, point, times)
    await resumed(sweep, key, dead)
    assert await _deltas(sqlite_url, key) == expected
