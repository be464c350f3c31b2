"""Contexts read back from the store, after calls that a real Runner made."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from google.adk.apps.app import App
from google.adk.models.base_llm import BaseLlm
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.tools.agent_tool import AgentTool

from lango.adk.models.adapter import ModelAdapter
from lango.adk.plugins.budget import BudgetPlugin
from lango.adk.plugins.model_calls import ModelCallsPlugin
from lango.adk.sessions.service import SessionServiceAdapter
from lango.errors import ContextTooLongError, ModelCallNotFoundError
from lango.insight.context import ContextPreview, ContextView
from lango.insight.context_reader import ContextReader
from lango.providers.policy.retry import Policy
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from lango.testing import Fault, Reply, ScriptedProvider
from tests.adk.plugins.plugin_talk import (
    APP,
    OLD_WAYS,
    SESSION,
    USER,
    PluginConversation,
    agent,
    called,
    calling,
    other,
    ours,
)

pytestmark = OLD_WAYS

WORDS = "many words " * 20


async def look() -> dict[str, Any]:
    """Look at much."""
    return {"seen": "sights " * 200}


@dataclass
class RecordedSession:
    """A session whose calls are recorded."""

    store: SqlSessionStore
    tenant: str
    load_budget: int | None = 0
    plugin: ModelCallsPlugin = field(init=False)

    def __post_init__(self) -> None:
        self.plugin = ModelCallsPlugin(self.store)
        self.reader = ContextReader(
            self.store, SessionKey(self.tenant, APP, USER, SESSION), text_room=40
        )

    def talk(self, model: BaseLlm, *plugins: BasePlugin, **options: Any) -> PluginConversation:
        service = SessionServiceAdapter(
            self.store, tenant=self.tenant, token_budget=self.load_budget
        )
        tools = options.pop("tools", [look])
        return PluginConversation(agent(model, *tools, **options), [*plugins, self.plugin], service)

    async def view(self) -> ContextView:
        found = (await self.reader.newest()).call
        assert found is not None
        return found

    async def preview(self) -> ContextPreview:
        found = (await self.reader.newest()).preview
        assert found is not None
        return found


@pytest_asyncio.fixture
async def session(store_url: str, tenant: str) -> AsyncIterator[RecordedSession]:
    async with SqlSessionStore(store_url) as store:
        session = RecordedSession(store, tenant)
        yield session
        await session.plugin.close()


def numbers(view: ContextView | ContextPreview) -> list[int | None]:
    return [one.number for one in view.sections if one.kind in ("history", "turn")]


def cuts(view: ContextView | ContextPreview) -> list[tuple[int | None, int | None, int, str]]:
    return [(cut.first, cut.last, cut.messages, cut.why) for cut in view.cut]


@pytest.mark.parametrize("kind", [0, 1], ids=["other", "ours"])
async def test_over_the_budget(session: RecordedSession, kind: int) -> None:
    models = [other(*["fine"] * 5), ours(*["fine"] * 5, token_budget=300)]
    talk = session.talk(models[kind], BudgetPlugin(300))
    for _ in range(5):
        await talk.say(WORDS)
    view = await session.view()
    left_out = 9 - view.messages_sent
    assert left_out > 0
    assert cuts(view) == [(1, left_out, left_out, "budget")]
    assert numbers(view) == list(range(left_out + 1, 10))
    assert view.messages_known == "exact"
    assert view.rest == 0
    assert [one.tools for one in view.sections if one.kind == "tools"] == [("look",)]


async def test_over_the_window_of_the_model(session: RecordedSession) -> None:
    model = ours(*["fine"] * 5, token_budget=None, context_window=600)
    talk = session.talk(model)
    for _ in range(5):
        await talk.say(WORDS)
    assert {why for *_, why in cuts(await session.view())} == {"window"}
    assert {why for *_, why in cuts(await session.preview())} == {"window"}


async def test_refused_as_too_long(session: RecordedSession) -> None:
    refusal = Reply("x", fault=Fault(0, ContextTooLongError("too long")))
    provider = ScriptedProvider(["fine", "fine", refusal, "fine"])
    talk = session.talk(ModelAdapter(provider, "demo", policy=Policy(tries=1)))
    for _ in range(3):
        await talk.say(WORDS)
    view = await session.view()
    first, last = view.attempts
    assert (first.number, first.outcome, first.error) == (1, "failed", "ContextTooLongError")
    assert view.attempt == last
    assert last.estimated < first.estimated
    assert {why for *_, why in cuts(view)} == {"refused"}
    sent = [message for message in provider.requests[-1].messages if message.role != "system"]
    assert len(numbers(view)) == view.messages_sent == len(sent)


async def test_what_was_not_loaded_was_not_given(session: RecordedSession) -> None:
    session.load_budget = 150
    talk = session.talk(ours(*["fine"] * 5))
    for _ in range(5):
        await talk.say(WORDS)
    view = await session.view()
    unsent = 9 - view.messages_sent
    assert unsent > 0
    assert cuts(view) == [(1, unsent, unsent, "not_given")]
    assert not view.cut[0].counted


async def test_what_was_cut_twice_says_that_the_border_is_counted(session: RecordedSession) -> None:
    session.load_budget = 400
    talk = session.talk(ours(*["fine"] * 9, token_budget=150))
    for _ in range(9):
        await talk.say(WORDS)
    view = await session.view()
    older, newer = view.cut
    assert (older.first, older.why, older.counted) == (1, "not_given", False)
    assert (newer.why, newer.counted) == ("budget", True)
    assert older.last == (newer.first or 0) - 1
    assert older.messages + newer.messages + view.messages_sent == 17


@pytest.mark.parametrize("kind", [0, 1], ids=["other", "ours"])
async def test_an_output_that_was_shortened(session: RecordedSession, kind: int) -> None:
    models: list[BaseLlm] = [
        other(called("look", "c1"), "fine"),
        ours(calling("look", "c1"), "fine", token_budget=200),
    ]
    await session.talk(models[kind], BudgetPlugin(200)).say("go")
    view = await session.view()
    assert view.shortened == ("c1",)
    *_, called_it, result = view.sections
    assert (called_it.shortened, result.shortened, result.tokens) == (False, True, None)
    assert len(result.text) == 40
    assert result.characters > 1_000
    assert 0 < view.rest <= 200
    assert view.messages_known == "exact"


async def test_what_was_rewound_later_was_seen(session: RecordedSession) -> None:
    talk = session.talk(ours("one", "two", "three"))
    await talk.say("first")
    second = await talk.say("second")
    seen = await session.view()
    runner = Runner(
        app=App(name=APP, root_agent=talk.agent, plugins=[session.plugin]),
        session_service=talk.service,
    )
    await runner.rewind_async(
        user_id=USER, session_id=SESSION, rewind_before_invocation_id=second[0].invocation_id
    )
    past = (await session.reader.call(seen.call)).call
    assert past == seen
    assert numbers(seen) == [1, 2, 3]
    assert numbers(await session.preview()) == [1, 2]
    await talk.say("third")
    assert [one.text for one in (await session.view()).sections if one.number] == [
        "first",
        "one",
        "third",
    ]


async def test_an_inner_agents_messages_are_not_recorded(session: RecordedSession) -> None:
    inner = agent(other("inside"), name="inner")
    outer = other(called("inner", "i", request="go"), "ok")
    await session.talk(outer, tools=[AgentTool(inner)]).say("go")
    (inner_call,) = [one for one in (await session.reader.newest()).earlier if one.agent == "inner"]
    view = (await session.reader.call(inner_call.call)).call
    assert view is not None
    assert view.messages_known == "unknown"
    assert (numbers(view), view.cut) == ([], ())
    assert view.messages_sent == 1
    assert (await session.view()).agent == "root"


async def test_what_another_agent_said_is_retold(session: RecordedSession) -> None:
    helper = agent(ours("helping"), name="helper")
    model = ours(calling("transfer_to_agent", "t", '{"agent_name": "helper"}'))
    await session.talk(model, sub_agents=[helper]).say("go")
    view = await session.view()
    assert view.agent == "helper"
    assert [(one.author, one.retold) for one in view.sections if one.number] == [
        ("user", False),
        ("root", True),
        ("root", True),
    ]


async def test_without_a_limit_nothing_is_cut(session: RecordedSession) -> None:
    talk = session.talk(ours(*["fine"] * 3, token_budget=None))
    for _ in range(3):
        await talk.say(WORDS)
        preview = await session.preview()
        assert (preview.budget, preview.cut) == (None, ())


async def test_the_preview_of_an_open_turn_is_its_next_call(session: RecordedSession) -> None:
    """A turn that was stopped between a call and its answer goes on with the same turn."""
    gone = Reply("x", fault=Fault(0, ContextTooLongError("too long")))
    talk = session.talk(ours(calling("look", "c1"), gone, gone))
    with pytest.raises(ContextTooLongError):
        await talk.say("go")
    preview = await session.preview()
    assert [one.kind for one in preview.sections] == ["turn"] * 3
    assert numbers(preview) == [1, 2, 3]


async def test_no_such_call(session: RecordedSession) -> None:
    await session.talk(ours("ok")).say("go")
    with pytest.raises(ModelCallNotFoundError):
        await session.reader.call("mc_0")


async def test_the_preview_loads_what_the_agent_would(session: RecordedSession) -> None:
    talk = session.talk(other(*["fine"] * 5))
    for _ in range(5):
        await talk.say(WORDS)
    key = SessionKey(session.tenant, APP, USER, SESSION)
    little = (await ContextReader(session.store, key, token_budget=300).newest()).preview
    assert little is not None
    whole = numbers(await session.preview())
    assert len(whole) == 10
    assert numbers(little) == whole[-len(numbers(little)) :] != whole
