"""Long conversations: a summary replaces older messages, once, whatever dies meanwhile."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from google.adk.agents import (
    SequentialAgent,  # pyright: ignore[reportDeprecated]  # people have them
)
from google.adk.apps.app import App
from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.platform.time import reset_time_provider, set_time_provider
from google.genai import types

from faults.recovery.deaths import Died
from lango.adk.apps.compaction import summarizer_of
from lango.adk.apps.load import Root
from lango.adk.durable import summaries
from lango.adk.durable.run import DurableAgent
from lango.adk.plugins import model_calls
from lango.core import failpoints
from lango.core.messages.history import DEFAULT_TOKEN_BUDGET
from lango.core.messages.messages import ToolCall
from lango.core.turns.events import Completed
from lango.errors import ConfigError, ModelUnavailableError
from lango.insight.context_reader import ContextReader
from lango.providers.base import ModelRequest
from lango.testing import Reply, ScriptedProvider
from tests.adk.durable.talks import (
    FACT,
    PAID,
    USAGE,
    DurableConversation,
    talking,
    text_of,
)
from tests.store.rows import key
from tests.store.turns.turn_stores import APP, opened


async def keeps_the_fact(url: str, tenant: str, turns: int) -> None:
    """The budget holds three turns; each summary includes the one before."""
    async with talking(url, tenant, token_budget=80) as talk:
        durable = talk.durable(talk.compaction(turns=5))
        for number in range(turns):
            turn = await talk.turn(durable, FACT if number == 0 else f"message {number}")
            assert turn.state == "completed"
        assert any(FACT in text for text in talk.last_request)
        assert len(talk.last_request) < 12
        calls = await talk.calls()
        stored = await talk.stored()
    assert len(stored) == len({call.call for call in calls}) == len(calls) == turns // 5
    assert {(call.agent, call.attempt.model, call.attempt.usage) for call in calls} == {
        ("root", "short", PAID)
    }
    assert len({summary.start_timestamp for summary in stored}) == 1  # each replaces all before


async def test_a_fact_of_the_first_turn_is_in_the_last_of_500_requests(
    sqlite_url: str, tenant: str
) -> None:
    await keeps_the_fact(sqlite_url, tenant, 500)


async def test_a_fact_of_the_first_turn_is_in_the_sixtieth_request(
    store_url: str, tenant: str
) -> None:
    await keeps_the_fact(store_url, tenant, 60)


async def test_without_compaction_the_fact_is_lost(sqlite_url: str, tenant: str) -> None:
    async with talking(sqlite_url, tenant, token_budget=80) as talk:
        durable = talk.durable()
        for number in range(20):
            await talk.turn(durable, FACT if number == 0 else f"message {number}")
    assert not any(FACT in text for text in talk.last_request)


async def test_the_answer_comes_before_the_summary_is_made(sqlite_url: str, tenant: str) -> None:
    async with talking(sqlite_url, tenant) as talk:
        durable = talk.durable(talk.compaction())
        await talk.turn(durable, FACT)
        talk.events.clear()
        talk.summaries_before.clear()
        turn = await talk.turn(durable, "and then?")
    seen = [
        (event.type, made) for event, made in zip(talk.events, talk.summaries_before, strict=True)
    ]
    assert seen[-2:] == [("message.completed", 0), ("completed", 1)]
    assert turn.usage is not None
    assert turn.usage["input"] == USAGE.input + PAID.input


async def test_a_request_too_long_for_one_summary_is_summarised_in_parts(
    sqlite_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries, "_SHARE", 60 / DEFAULT_TOKEN_BUDGET)
    async with talking(sqlite_url, tenant) as talk:
        durable = talk.durable(talk.compaction(turns=3))
        for number in range(6):
            await talk.turn(durable, FACT if number == 0 else f"message {number} " + "word " * 30)
        stored = await talk.stored()
        whole = len(await talk.calls("answer"))
    assert whole == 6
    assert len(stored) > 1
    assert FACT in text_of(stored[-1])
    ends = [summary.end_timestamp for summary in stored]
    assert ends == sorted(set(ends))


async def points_of(run: Callable[[], Any]) -> list[str]:
    """The failpoints that a run passes."""
    passed: list[str] = []
    failpoints.armed = passed.append
    try:
        await run()
    finally:
        failpoints.armed = None
    return passed


async def killed(run: Callable[[], Any], at: int) -> str:
    """Run until the failpoint of that number, and die there; its name."""
    passed: list[str] = []

    def armed(name: str) -> None:
        passed.append(name)
        if len(passed) > at:
            raise Died

    failpoints.armed = armed
    try:
        with suppress(Died, BaseExceptionGroup):
            await run()
            pytest.fail("the turn has ended")
    finally:
        failpoints.armed = None
    return passed[at]


def one_agent(talk: DurableConversation) -> Root:
    return talk.agent()


def a_sequence(talk: DurableConversation) -> Root:
    return SequentialAgent(name="both", sub_agents=[talk.agent()])  # pyright: ignore[reportDeprecated]


def with_a_tool(talk: DurableConversation) -> Root:
    """An agent that calls a tool first: its turn is summarised while it runs."""

    def look() -> dict[str, str]:
        """Look at something."""
        return {"seen": "a boat"}

    def reply(request: ModelRequest) -> Reply:
        if request.messages[-1].is_tool:
            return Reply("done", usage=USAGE)
        return Reply("", (ToolCall(f"c{len(request.messages)}", "look"),), usage=USAGE)

    talk.model = ScriptedProvider(rule=reply)
    root = talk.agent()
    root.tools = [look]
    return root


SHAPES = [
    (one_agent, {"turns": 1}),
    (with_a_tool, {"tokens": 1, "keep_events": 1}),
    (one_agent, {"turns": 2}),
    (one_agent, {"tokens": 1, "keep_events": 2}),
    (a_sequence, {"turns": 2}),
]


@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")
@pytest.mark.parametrize(("make", "options"), SHAPES)
async def test_killed_while_summarising_there_is_one_summary_and_one_charge(
    make: Callable[[DurableConversation], Root],
    options: dict[str, int],
    store_url: str,
    tenant: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker dies at each failpoint from the summary on; another one resumes the turn."""
    # A record that a dead worker was writing raises in a task of its own.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    async with opened(store_url) as stores:

        def durable(talk: DurableConversation) -> DurableAgent:
            return talk.durable(talk.compaction(None, **options), make(talk))

        async def begun(name: str) -> DurableConversation:
            await stores.session(key(name))
            talk = DurableConversation(stores, name)
            await talk.turn(durable(talk), FACT)
            await stores.submit(key(name), "and then? " * 20)  # longer than its summary
            return talk

        talk = await begun(tenant)
        points = await points_of(partial(talk.attempt, durable(talk)))
        expected = [text_of(summary) for summary in await talk.stored()]
        usages = [call.attempt.usage for call in await talk.calls()]
        assert FACT in expected[-1]
        killed_at: set[str] = set()
        for number in range(points.index("summary.start") - 2, len(points) - 1):
            talk = await begun(f"{tenant}-{number}")
            with monkeypatch.context() as patched:  # the records of a dead worker are not written
                patched.setattr(model_calls, "CLAIMED_FLUSH_SECONDS", 0.01)
                killed_at.add(await killed(partial(talk.attempt, durable(talk)), number))
            turn = await talk.attempt(durable(talk))
            assert turn.state == "completed"
            assert [text_of(summary) for summary in await talk.stored()] == expected, killed_at
            calls = await talk.calls()
            assert [call.attempt.usage for call in calls] == usages, killed_at
            assert {call.attempt.outcome for call in calls} == {"completed"}
    assert {"summary.start", "model.ask", "summary.end", "append.after"} <= killed_at


async def test_a_summary_that_fails_fails_no_turn(
    sqlite_url: str, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with talking(sqlite_url, tenant) as talk:
        replies = iter([ModelUnavailableError("overloaded"), Reply("later", usage=PAID)])

        def overloaded_once(request: ModelRequest) -> Reply:
            del request
            reply = next(replies)
            if isinstance(reply, Exception):
                raise reply
            return reply

        talk.summarizing = ScriptedProvider(rule=overloaded_once)
        durable = talk.durable(talk.compaction())
        await talk.turn(durable, FACT)
        with caplog.at_level(logging.WARNING, "lango.adk.durable.summaries"):
            turn = await talk.turn(durable, "two")
        assert turn.state == "completed"
        assert await talk.stored() == []
        assert "could not be summarised" in caplog.text
        assert turn.id in caplog.text
        await talk.turn(durable, "three")
        assert [text_of(summary) for summary in await talk.stored()] == ["later"]
        outcomes = [call.attempt.outcome for call in await talk.calls()]
    assert outcomes == ["failed", "completed"]


class Hanging(BaseEventsSummarizer):
    """A summariser that never ends."""

    def __init__(self) -> None: ...

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        del events
        await asyncio.Event().wait()
        return None


async def test_a_summary_that_hangs_does_not_hold_its_turn(
    sqlite_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries, "SUMMARY_SECONDS", 0.01)
    async with talking(sqlite_url, tenant) as talk:
        config = talk.compaction().model_copy(update={"summarizer": Hanging()})
        turn = await talk.turn(talk.durable(config), FACT)
        turn = await talk.turn(talk.durable(config), "two")
        assert turn.state == "completed"
        assert await talk.stored() == []


class Foreign(BaseLlm):
    """A model class outside lango."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        del llm_request, stream
        text = types.Part(text="In short: hello.")
        yield LlmResponse(content=types.Content(role="model", parts=[text]))


async def test_an_app_has_its_own_compaction_and_any_model(sqlite_url: str, tenant: str) -> None:
    other = Foreign(model="other-1")
    async with talking(sqlite_url, tenant) as talk:
        app = App(
            name=APP, root_agent=talk.agent(), events_compaction_config=talk.compaction(other)
        )
        durable = talk.durable(root=app)
        await talk.turn(durable, FACT)
        await talk.turn(durable, "two")
        assert [text_of(summary) for summary in await talk.stored()] == ["In short: hello."]
        (call,) = await talk.calls()
    assert (call.attempt.model, call.agent, call.attempt.outcome) == (
        "other-1",
        "root",
        "completed",
    )
    assert call.estimated > 0
    assert app.events_compaction_config is not None
    assert app.events_compaction_config.summarizer is not None


async def test_by_default_the_agents_own_model_summarises(sqlite_url: str, tenant: str) -> None:
    async with talking(sqlite_url, tenant) as talk:
        config = talk.compaction().model_copy(update={"summarizer": None})
        durable = talk.durable(config)
        await talk.turn(durable, FACT)
        await talk.turn(durable, "two")
        (call,) = await talk.calls()
    assert (call.attempt.model, call.agent) == ("demo", "root")


@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")
def test_a_workflow_without_a_model_needs_one_for_summaries() -> None:
    with pytest.raises(ConfigError, match="set `compaction"):
        summarizer_of(SequentialAgent(name="none", sub_agents=[]))  # pyright: ignore[reportDeprecated]


async def test_a_message_from_a_slow_clock_is_not_taken_for_summarised(
    sqlite_url: str, tenant: str
) -> None:
    async with talking(sqlite_url, tenant) as talk:
        durable = talk.durable(talk.compaction())
        await talk.turn(durable, FACT)
        await talk.turn(durable, "two")
        set_time_provider(lambda: 1_000.0)
        try:
            await talk.turn(durable, "three")
        finally:
            reset_time_provider()
    assert talk.last_request[-1] == "three"
    assert len(talk.last_request) == 2


async def test_the_context_view_shows_the_summary_and_what_it_replaces(
    store_url: str, tenant: str
) -> None:
    async with talking(store_url, tenant) as talk:
        durable = talk.durable(talk.compaction())
        for text in (FACT, "two", "three"):
            await talk.turn(durable, text)
        reader = ContextReader(talk.stores.sessions, key(tenant))
        context = await reader.newest()
    assert context.call is not None
    assert context.call.messages_known == "exact"
    (summary,) = [section for section in context.call.sections if section.kind == "summary"]
    assert FACT in summary.text
    assert summary.replaces == (1, 4)
    assert [(cut.first, cut.last, cut.why) for cut in context.call.cut] == [(1, 4, "summarised")]
    assert context.preview is not None
    assert context.preview.sections[0].kind == "summary"


async def test_a_tool_call_stays_whole_beside_a_summary(sqlite_url: str, tenant: str) -> None:
    def look() -> dict[str, str]:
        """Look at something."""
        return {"seen": "a boat"}

    async with talking(sqlite_url, tenant, token_budget=400) as talk:
        talk.model = ScriptedProvider(
            rule=lambda request: (
                Reply("done", usage=USAGE)
                if request.messages[-1].is_tool
                else Reply("", (ToolCall(f"c{len(request.messages)}", "look"),), usage=USAGE)
            )
        )
        root = talk.agent()
        root.tools = [look]
        durable = talk.durable(talk.compaction(turns=3), root)
        for number in range(8):
            turn = await talk.turn(durable, FACT if number == 0 else f"message {number}")
            assert turn.state == "completed"
        assert any(FACT in text for text in talk.last_request)
    assert isinstance(talk.events[-1], Completed)
