"""What summaries hide from models, and what they must not."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from google.adk.agents import (
    LlmAgent,
    ParallelAgent,  # pyright: ignore[reportDeprecated]  # people have them
)
from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.platform.time import reset_time_provider, set_time_provider
from google.genai import types
from pydantic import PrivateAttr

from lango.adk.durable.run import DurableAgent
from lango.adk.models.adapter import ModelAdapter
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.messages.messages import ToolCall
from lango.core.redaction import MASK
from lango.errors import ModelUnavailableError
from lango.providers.base import ModelRequest
from lango.store.credentials.store import Owner, SqlCredentialStore
from lango.testing import Reply, ScriptedProvider
from tests.adk.durable.talks import FACT, PAID, USAGE, DurableConversation, talking, text_of
from tests.store.rows import key
from tests.store.turns.turn_stores import APP
from tests.support.credential_agents import KEY, PUBLIC_URL, key_config

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow"),
    # ADK's AuthConfig calls its own deprecated method.
    pytest.mark.filterwarnings(
        "ignore:This method is deprecated. Use credential_key instead:DeprecationWarning"
    ),
]

SECRET = "sk-very-secret-4711"


class Slow(BaseLlm):
    """A model that answers when it may."""

    _may_answer: Callable[[], Awaitable[object]] = PrivateAttr()
    _text: str = PrivateAttr()
    _asked: int = PrivateAttr(default=0)

    def __init__(self, may_answer: Callable[[], Awaitable[object]], text: str) -> None:
        super().__init__(model="slow")
        self._may_answer, self._text = may_answer, text

    @property
    def asked(self) -> int:
        return self._asked

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        del llm_request, stream
        self._asked += 1
        await self._may_answer()
        content = types.Content(role="model", parts=[types.Part(text=self._text)])
        yield LlmResponse(content=content)


def look(at: int) -> dict[str, str]:
    """Look at something."""
    return {"seen": f"boat {at}"}


def looking(talk: DurableConversation, rounds: int, ends: str = "") -> LlmAgent:
    """An agent that calls a tool that often in each turn, and then answers, or calls `ends`."""
    asked = 0

    def reply(request: ModelRequest) -> Reply:
        nonlocal asked
        del request
        asked += 1
        if asked % (rounds + 1) == 0:
            end = (ToolCall(f"e{asked}", ends, '{"result": "counted"}'),) if ends else ()
            return Reply("" if ends else f"answer {asked}", end, usage=USAGE)
        return Reply("", (ToolCall(f"c{asked}", "look", f'{{"at": {asked}}}'),), usage=USAGE)

    talk.model = ScriptedProvider(rule=reply)
    root = talk.agent()
    root.tools = [look]
    return root


async def test_a_secret_known_later_is_in_no_summary(store_url: str, tenant: str) -> None:
    """Neither in the summariser's request, which goes to a vendor, nor in what it answers."""
    async with talking(store_url, tenant) as talk:
        talk.summarizing = ScriptedProvider(
            rule=lambda request: Reply(f"{request.messages[-1].content} {SECRET}", usage=PAID)
        )
        durable = talk.durable(talk.compaction())
        await talk.turn(durable, f"my key is {SECRET}")
        config = key_config()
        config.exchanged_auth_credential = AuthCredential(
            auth_type=AuthCredentialTypes.API_KEY, api_key=SECRET
        )
        credentials = SqlCredentialStore(talk.stores.sessions.database, (KEY,), PUBLIC_URL)
        talk.stores.sessions.credentials = credentials
        where = key(tenant)
        owner = Owner(where.tenant, where.app_name, where.user_id)
        await credentials.save(owner, "crm", config.model_dump_json(), "api_key")
        await talk.turn(durable, "and now?")
        (summary,) = await talk.stored()
        (request,) = talk.summarizing.requests
    assert SECRET not in request.messages[-1].content
    assert MASK in request.messages[-1].content
    assert SECRET not in text_of(summary)


@pytest.mark.parametrize("options", [{"tokens": 1}, {"tokens": 1, "keep_events": 1}])
async def test_the_message_being_answered_stays(
    options: dict[str, Any], store_url: str, tenant: str
) -> None:
    """ADK with `event_retention_size` 0 hides it too."""
    async with talking(store_url, tenant) as talk:
        durable = talk.durable(talk.compaction(**options))
        await talk.turn(durable, FACT)
        await talk.turn(durable, "what now? " * 20)
        assert len(await talk.stored()) > 0
    assert talk.last_request[-1] == "what now? " * 20
    assert FACT in talk.last_request[0]


@pytest.mark.parametrize("keep_events", [0, 1, 2])
async def test_a_message_hidden_in_its_own_turn_is_in_the_summary(
    keep_events: int, store_url: str, tenant: str
) -> None:
    """A turn of many tool calls is summarised while it runs."""
    async with talking(store_url, tenant) as talk:
        root = looking(talk, rounds=6)
        durable = talk.durable(talk.compaction(tokens=1, keep_events=keep_events), root)
        message = "Count the boats in the harbour, please."
        turn = await talk.turn(durable, message)
        assert turn.state == "completed"
        assert len(await talk.stored()) > 1
        newest = text_of((await talk.stored())[-1])
    assert any(f"to be answered:\n\n{message}" in text for text in talk.last_request)
    assert len(talk.last_request) < 8
    assert newest.count(message) <= 1


@pytest.mark.parametrize("options", [{"turns": 2}, {"tokens": 1, "keep_events": 1}])
async def test_an_answered_message_is_not_repeated_after_its_summary(
    options: dict[str, Any], sqlite_url: str, tenant: str
) -> None:
    async with talking(sqlite_url, tenant) as talk:
        durable = talk.durable(talk.compaction(**options))
        for text in (FACT, "two " * 20):
            await talk.turn(durable, text)
        stored = await talk.stored()
    assert {text_of(summary) for summary in stored} == {f"So far: {FACT}."}


async def test_a_summary_that_fails_is_tried_once_in_a_turn(sqlite_url: str, tenant: str) -> None:
    def overloaded(request: ModelRequest) -> Reply:
        del request
        raise ModelUnavailableError("overloaded")

    async with talking(sqlite_url, tenant) as talk:
        talk.summarizing = ScriptedProvider(rule=overloaded)
        root = looking(talk, rounds=4)
        durable = talk.durable(talk.compaction(tokens=1, keep_events=1), root)
        turn = await talk.turn(durable, FACT)
        assert turn.state == "completed"
        assert len(talk.summarizing.requests) == 1
        await talk.turn(durable, "again")
        assert len(talk.summarizing.requests) == 2


class Undecided(BaseEventsSummarizer):
    """An app's own class, which makes no summary yet."""

    def __init__(self) -> None:
        self.asked = 0

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        del events
        self.asked += 1
        return None


async def test_a_class_of_the_app_may_decline_and_is_asked_again(
    sqlite_url: str, tenant: str
) -> None:
    undecided = Undecided()
    async with talking(sqlite_url, tenant) as talk:
        root = looking(talk, rounds=3)
        config = talk.compaction(tokens=1, keep_events=1)
        config = config.model_copy(update={"summarizer": undecided})
        await talk.turn(talk.durable(config, root), FACT)
    assert undecided.asked > 2


class Hanging(BaseEventsSummarizer):
    """A summariser that never ends."""

    def __init__(self) -> None: ...

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        del events
        await asyncio.Event().wait()
        return None


async def test_a_summary_does_not_use_up_the_time_of_its_turn(sqlite_url: str, tenant: str) -> None:
    async with talking(sqlite_url, tenant) as talk:
        config = talk.compaction(turns=1).model_copy(update={"summarizer": Hanging()})
        durable = talk.durable(config)
        await talk.stores.submit(key(tenant), FACT)
        worker = await talk.stores.worker()
        claim = await talk.stores.claim((await talk.stores.sessions.locate(key(tenant))).pk, worker)
        claim = replace(claim, time_left=4.0)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        types = [event.type async for event in durable.run(claim)]
        assert types[-1] == "completed"
        assert loop.time() - begun < 60  # SUMMARY_SECONDS is 120


async def test_a_parallel_agents_answer_is_hidden_with_its_turn(
    store_url: str, tenant: str
) -> None:
    """Its event has the time at which its request began, before events that are stored earlier."""
    async with talking(store_url, tenant) as talk:
        fast_answered = asyncio.Event()

        async def noted(callback_context: Any) -> None:
            del callback_context
            fast_answered.set()

        slow = LlmAgent(name="careful", model=Slow(fast_answered.wait, "the slow answer"))
        fast = talk.agent()
        fast.after_agent_callback = noted
        root = ParallelAgent(name="both", sub_agents=[slow, fast])  # pyright: ignore[reportDeprecated]
        durable = talk.durable(talk.compaction(turns=1), root)
        await talk.turn(durable, FACT)
        fast_answered.clear()
        await talk.turn(durable, "two")
    assert talk.last_request == [f"So far: {FACT}.", "two"]


async def test_parallel_agents_ask_for_one_summary(sqlite_url: str, tenant: str) -> None:
    async with talking(sqlite_url, tenant) as talk:
        summarizing = Slow(lambda: asyncio.sleep(0.2), "So far.")
        model = ModelAdapter(talk.model, "demo")
        agents = [LlmAgent(name=f"agent_{number}", model=model) for number in range(3)]
        root = ParallelAgent(name="all", sub_agents=[*agents])  # pyright: ignore[reportDeprecated]
        durable = talk.durable(talk.compaction(summarizing, tokens=5, keep_events=1), root)
        await talk.turn(durable, FACT)
        before = summarizing.asked
        turn = await talk.turn(durable, "two " * 50)
        assert turn.state == "completed"
        calls, stored = await talk.calls(), await talk.stored()
    assert summarizing.asked > before
    assert len(stored) == len(calls) == summarizing.asked == len({call.call for call in calls})


@pytest.mark.parametrize("first", [9_000.0, 1_000.0])
async def test_rows_of_any_times_are_hidden_once_they_are_summarised(
    first: float, store_url: str, tenant: str
) -> None:
    """A deploy switches summaries on for a session whose workers had different clocks."""
    async with talking(store_url, tenant) as talk:
        plain = talk.durable()
        for number, time in enumerate((first, 5_000.0, 3_000.0)):
            set_time_provider(lambda time=time: time)
            try:
                await talk.turn(plain, FACT if number == 0 else f"old {number}")
            finally:
                reset_time_provider()
        durable = talk.durable(talk.compaction(turns=3))
        await talk.turn(durable, "new")
        await talk.turn(durable, "newest")
    assert talk.last_request[1:] == ["newest"]
    assert FACT in talk.last_request[0]


async def rewound(talk: DurableConversation, durable: DurableAgent, turn: str) -> None:
    service = SessionServiceAdapter(talk.stores.sessions, tenant=talk.tenant, token_budget=None)
    runner: AgentRunner = AgentRunner(durable.runner.root, service, name=APP)
    where = key(talk.tenant)
    await runner.adk.rewind_async(
        user_id=where.user_id, session_id=where.session_id, rewind_before_invocation_id=turn
    )


async def test_after_a_rewind_the_same_events_are_summarised_again(
    store_url: str, tenant: str
) -> None:
    async with talking(store_url, tenant) as talk:
        durable = talk.durable(talk.compaction(tokens=1, keep_events=1))
        await talk.turn(durable, FACT)
        before = await talk.stored()
        turn = await talk.turn(durable, "two " * 20)
        texts = [text_of(summary) for summary in await talk.stored()]
        assert len(texts) > len(before)
        await rewound(talk, durable, turn.invocation_id)
        assert await talk.stored() == before
        turn = await talk.turn(durable, "two " * 20)
        assert turn.state == "completed"
        assert [text_of(summary) for summary in await talk.stored()] == texts
    assert FACT in talk.last_request[0]
    assert "two" not in talk.last_request[0]


async def test_switched_off_and_on_again_nothing_is_lost(store_url: str, tenant: str) -> None:
    """Without the setting the stored summary still replaces its events; later turns follow it."""
    async with talking(store_url, tenant, token_budget=120) as talk:
        on, off = talk.durable(talk.compaction(turns=3)), talk.durable()
        for number in range(6):
            await talk.turn(on, FACT if number == 0 else f"message {number}")
        for number in range(6, 10):
            await talk.turn(off, f"message {number}")
            assert any(FACT in text for text in talk.last_request)
        stored = len(await talk.stored())
        for number in range(10, 20):
            await talk.turn(on, f"message {number}")
            assert any(FACT in text for text in talk.last_request)
        assert len(await talk.stored()) > stored
    told = [request.messages[-1].content for request in talk.summarizing.requests]
    for number in range(1, 15):
        assert any(f"message {number}" in text for text in told)


async def test_a_task_is_summarised_by_itself(store_url: str, tenant: str) -> None:
    """ADK keeps the events of a task apart, and so are their summaries."""

    def boats_or_fact(request: ModelRequest) -> Reply:
        told = request.messages[-1].content.partition("concise and capture")[2]
        has_fact = FACT in told or "SESSION" in told
        return Reply(
            f"{'SESSION' * has_fact}{'TASK' * ('seen' in told or 'TASK' in told)}", usage=PAID
        )

    async with talking(store_url, tenant) as talk:
        talk.summarizing = ScriptedProvider(rule=boats_or_fact)
        model = looking(talk, rounds=5, ends="finish_task").model
        helper = LlmAgent(
            name="helper", description="helps", mode="task", model=model, tools=[look]
        )
        calls = iter(range(100))

        def reply(request: ModelRequest) -> Reply:
            if request.messages[-1].is_tool:
                return Reply("the helper is done", usage=USAGE)
            arguments = '{"request": "count boats"}'
            return Reply("", (ToolCall(f"h{next(calls)}", "helper", arguments),), usage=USAGE)

        provider = ScriptedProvider(rule=reply)
        root = LlmAgent(name="root", model=ModelAdapter(provider, "demo"), sub_agents=[helper])
        durable = talk.durable(talk.compaction(tokens=1, keep_events=2), root)
        for number in range(3):
            turn = await talk.turn(durable, FACT if number == 0 else f"message {number}")
            assert turn.state == "completed", turn.error
        session = await SessionServiceAdapter(
            talk.stores.sessions, tenant=tenant, token_budget=None
        ).get_session(app_name=APP, user_id=key(tenant).user_id, session_id=key(tenant).session_id)
    assert session is not None
    found = [event for event in session.events if event.actions.compaction]
    scoped = [event for event in found if event.isolation_scope]
    assert scoped, [
        (e.author, e.isolation_scope, bool(e.content), e.branch) for e in session.events
    ]
    assert len(scoped) < len(found)
    texts = {
        text_of(event.actions.compaction): bool(event.isolation_scope)
        for event in found
        if event.actions.compaction
    }
    assert {text.partition("\n")[0]: scoped for text, scoped in texts.items()} == {
        "SESSION": False,
        "TASK": True,
    }
    last = [message.content for message in provider.requests[-1].messages[1:]]
    assert last[0].startswith("SESSION")
    assert "TASK" not in " ".join(last)
