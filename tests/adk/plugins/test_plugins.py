"""The whole set at work in one app."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from google.adk.models.base_llm import BaseLlm
from google.adk.tools.agent_tool import AgentTool

import lango
from lango.adk.sessions.service import SessionServiceAdapter
from lango.store.model_calls import ModelCallStore
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from tests.adk.plugins.plugin_talk import (
    APP,
    OLD_WAYS,
    SESSION,
    USER,
    PluginConversation,
    agent,
    answers,
    called,
    calling,
    other,
    ours,
    said,
    unanswered,
)

pytestmark = OLD_WAYS


async def breaks() -> dict[str, Any]:
    """Break."""
    raise RuntimeError("broken")


async def works() -> dict[str, Any]:
    """Work."""
    return {"done": True}


@pytest_asyncio.fixture
async def store(store_url: str) -> AsyncIterator[SqlSessionStore]:
    async with SqlSessionStore(store_url) as store:
        yield store


MISTAKES: list[tuple[str, dict[str, str]]] = [
    ("transfer_to_agent", {"agent_name": "ghost"}),
    ("breaks", {}),
    ("unheard_of", {}),
    ("works", {}),
    ("works", {}),
    ("works", {}),
    ("works", {}),
]


def mistaken(kind: str) -> BaseLlm:
    """A model that makes every mistake, then answers."""
    if kind == "other":
        return other(*[called(n, f"c{i}", **a) for i, (n, a) in enumerate(MISTAKES)], "at last")
    inputs = ['{"agent_name":"ghost"}', *["{}"] * 6]
    named = zip(MISTAKES, inputs, strict=True)
    return ours(*[calling(n, f"c{i}", x) for i, ((n, _), x) in enumerate(named)], "at last")


@pytest.mark.parametrize("kind", ["other", "ours"])
async def test_a_turn_full_of_mistakes_comes_to_its_answer(
    store: SqlSessionStore, tenant: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    helper = agent(other("here"), name="helper")
    root = agent(mistaken(kind), breaks, works, sub_agents=[helper])
    plugins = lango.plugins(store, token_budget=2_000, model_calls=8, tool_calls=7)
    service = SessionServiceAdapter(store, tenant=tenant)
    talk = PluginConversation(root, plugins, service)
    with caplog.at_level(logging.CRITICAL):
        assert said(await talk.say("go")) == "at last"
    events_read = answers(talk.events)
    assert ["error" in one for one in events_read] == [True, True, True, False, False, False, True]
    assert "helper" in events_read[0]["error"]
    assert "works" in events_read[2]["error"]
    assert "in a row" in events_read[6]["error"]
    assert unanswered((await talk.session()).events) == set()
    calls = await ModelCallStore(store.database).of_session(SessionKey(tenant, APP, USER, SESSION))
    assert len(calls) == 8
    assert [row.call.sent for row in calls] == [15, 13, 11, 9, 7, 5, 3, 1]
    for plugin in plugins:
        await plugin.close()


async def test_a_model_that_never_learns_is_stopped(store: SqlSessionStore) -> None:
    """Bad transfers count too, though another plugin answers them."""
    bad = called("transfer_to_agent", agent_name="ghost")
    helper = agent(other("here"), name="helper")
    talk = PluginConversation(agent(other(*[bad] * 9), sub_agents=[helper]), lango.plugins(store))
    with pytest.raises(lango.RepeatedCallError, match="transfer_to_agent was called 5 times"):
        await talk.say("go")


async def test_the_set_reaches_agents_that_tools_run(store: SqlSessionStore, tenant: str) -> None:
    inner = agent(other(called("breaks"), "inside"), breaks, name="inner")
    root = agent(other(called("inner", request="go"), "outside"), AgentTool(inner))
    plugins = lango.plugins(store, tenant=tenant)
    events = await PluginConversation(root, plugins).say("go")
    assert said(events) == "outside"
    assert answers(events) == [{"result": "inside"}]
    calls = await ModelCallStore(store.database).of_session(SessionKey(tenant, APP, USER, SESSION))
    assert [row.call.agent for row in calls] == ["root", "inner", "inner", "root"]


async def test_without_a_store_nothing_is_written_and_all_else_works() -> None:
    talk = PluginConversation(agent(other(called("breaks"), "ok"), breaks), lango.plugins())
    assert said(await talk.say("go")) == "ok"


def test_the_names_of_the_plugins_are_their_own() -> None:
    names = [plugin.name for plugin in lango.plugins("sqlite:///:memory:")]
    assert len(set(names)) == len(names)
    assert all(name.startswith("lango_") for name in names)
