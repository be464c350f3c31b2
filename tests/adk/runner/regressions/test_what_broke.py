"""Failures that users of such stores saw, each end to end with a real Runner, after a reload."""

import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.apps.app import App
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.sessions.session import SessionAdapter
from tests.adk.runner.parity.apps import APP
from tests.adk.runner.parity.features import FEATURES, Feature
from tests.adk.runner.parity.services import InMemory, Services, Stored, create, take
from tests.adk.runner.parity.steps import SESSION, USER, Fill, Mark, Notes, Say, load, perform
from tests.adk.runner.scripted import Request, ScriptedLlm, unpaired
from tests.adk.runner.tools import look, remember

PLAIN = FEATURES["rewind"]


@pytest.fixture
def stored(store_url: str, tenant: str) -> Stored:
    """Our service on either database, its window wide."""
    return Stored(store_url, tenant, token_budget=0)


async def _say(services: Services, text: str, feature: Feature = PLAIN) -> list[Request]:
    """The model requests of one turn, by a Runner and a service made for it."""
    notes = Notes()
    await take(services, feature, notes, Say(text))
    return notes.requests


def _texts(request: Request) -> list[str]:
    return [part.text for content in request for part in content.parts or [] if part.text]


async def test_the_first_message_reaches_the_model(stored: Stored) -> None:
    """It was sent with empty contents when the session object was not kept up to date."""
    await create(stored)
    requests = await _say(stored, "hello")
    assert [_texts(request) for request in requests] == [["hello"]]


async def test_the_first_message_of_a_session_made_by_the_runner(stored: Stored) -> None:
    """The same when the Runner itself creates the session, and never loads it."""
    notes = Notes()
    async with stored.open() as (sessions, _):
        runner = Runner(app=PLAIN.build(), session_service=sessions, auto_create_session=True)
        await perform(Say('do look {"number": 1}'), runner, notes)
    assert [len(request) for request in notes.requests] == [1, 3]
    [again] = await _say(stored, "again")
    assert _texts(again)[-1] == "again"
    assert len(again) == 5


def _counted(callback_context: CallbackContext) -> None:
    """A callback that leaves a state-only event in every turn."""
    callback_context.state["turns"] = int(callback_context.state.get("turns", 0)) + 1


class SpeechlessLlm(ScriptedLlm):
    """Has nothing to say when told to be quiet."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Empty the answer to "hush"."""
        async for response in super().generate_content_async(llm_request, stream):
            if _texts([llm_request.contents[-1]]) == ["hush"]:
                response.content = types.Content(role="model", parts=[])
            yield response


def _counting() -> App:
    agent = LlmAgent(
        name="root",
        model=SpeechlessLlm(),
        tools=[remember],
        before_agent_callback=_counted,
        after_agent_callback=_counted,
    )
    return App(name=APP, root_agent=agent)


async def test_no_empty_turn_is_stored(stored: Stored) -> None:
    """An empty assistant turn made the bot repeat its previous answer."""
    feature, memory = Feature(_counting, (), ()), InMemory()
    for services in (stored, memory):
        await create(services)
    for text in ("one", 'do remember {"key": "a", "value": "b"}', "hush", "two", "three"):
        ours, theirs = await _say(stored, text, feature), await _say(memory, text, feature)
        assert [_texts(request) for request in ours] == [_texts(request) for request in theirs]
        assert _texts(ours[0])[-1] == text
        assert all(content.parts for content in ours[0])
    async with stored.open() as (sessions, _):
        session = await load(sessions, APP)
    assert isinstance(session, SessionAdapter)
    assert session.state["turns"] == 10
    assert all(message.content or message.tool_calls for message in session.history)
    answers = [message.content for message in session.history if message.role == "assistant"]
    assert answers[-2:] == ["you said: two", "you said: three"]


@pytest.fixture
def adk_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What ADK warns of."""
    caplog.set_level(logging.WARNING, logger="google_adk")
    return caplog


def _warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if record.levelno >= logging.WARNING]


async def test_replayed_events_have_known_authors(
    stored: Stored, adk_log: pytest.LogCaptureFixture
) -> None:
    """An author "model" filled the log with "Event from an unknown agent"."""
    await create(stored)
    await _say(stored, 'do look {"number": 1} then look {"number": 2}')
    await take(stored, PLAIN, Notes(), Mark({"by": "the application"}))
    await _say(stored, "again")
    await _say(stored, "and again")
    assert _warnings(adk_log) == []


_AS_AN_OLDER_SYSTEM_WROTE_THEM = """
update messages set author = '', event = null,
  role = case role when 'assistant' then 'model' when 'tool' then 'function' else role end
where session_pk in (select pk from sessions where tenant = :tenant)"""


async def test_rows_without_an_author_get_one(
    stored: Stored, adk_log: pytest.LogCaptureFixture
) -> None:
    """Rows of a system that knew roles only are the user's and the root agent's."""
    await create(stored)
    await _say(stored, 'do look {"number": 1}')
    [expected] = await _say(stored, "again")
    async with stored.open() as (sessions, _):
        assert isinstance(sessions, SessionServiceAdapter)
        async with sessions.store.database.begin() as connection:
            await connection.execute(
                sa.text(_AS_AN_OLDER_SYSTEM_WROTE_THEM), {"tenant": stored.tenant}
            )
    [request] = await _say(stored, "and again")
    assert [content.parts for content in request[: len(expected)]] == [
        content.parts for content in expected
    ]
    assert [content.role for content in request[-3:]] == ["user", "model", "user"]
    assert _warnings(adk_log) == []


async def test_no_call_loses_its_output_to_a_truncation(
    store_url: str, tenant: str, adk_log: pytest.LogCaptureFixture
) -> None:
    """A window that began between a call and its result was refused by the provider."""
    await create(Stored(store_url, tenant))
    looks = " then ".join(f'look {{"number": {number}}}' for number in range(4))
    both = 'look {"number": 8} and look {"number": 9}'
    for _ in range(3):
        await _say(Stored(store_url, tenant), f"do {looks} then {both}")
    lengths: set[int] = set()
    for budget in range(10, 900, 69):
        [request] = await _say(Stored(store_url, tenant, budget), "next")
        assert _texts([request[-1]]) == ["next"]
        assert not unpaired(request)
        lengths.add(len(request))
    assert len(lengths) > 4, "the cut never moved"
    assert _warnings(adk_log) == []


async def test_a_result_follows_its_call(stored: Stored) -> None:
    """Every turn after a tool call was rejected when the reload tore the two apart."""
    await create(stored)
    await _say(stored, 'do look {"number": 1} and look {"number": 2} then look {"number": 3}')
    await take(stored, PLAIN, Notes(), Fill("more", 3))
    [request] = await _say(stored, "next")
    assert not unpaired(request)
    kinds = [
        "call" if part.function_call else "result" if part.function_response else content.role
        for content in request
        for part in content.parts or []
    ]
    assert kinds[:8] == ["user", "call", "call", "result", "result", "call", "result", "model"]


@pytest.mark.parametrize("value", ["123", "1.5", "true", "null", "[]", '{"a": 1}', '"quoted"', ""])
async def test_a_text_in_the_state_stays_a_text(stored: Stored, value: str) -> None:
    """A state value "123" came back as a number."""
    await create(stored, {"created": value, "user:created": value, "app:created": value})
    async with stored.open() as (sessions, _):
        runner = Runner(app=_telling(value), session_service=sessions)
        await perform(Say("go", state={"given": value, "deep": {"list": [value]}}), runner, Notes())
    async with stored.open() as (sessions, _):
        session = await load(sessions, APP)
    for key in ("created", "user:created", "app:created", "given", "kept", "user:kept", "app:kept"):
        assert session.state[key] == value
        assert type(session.state[key]) is str
    assert session.state["deep"] == {"list": [value]}
    assert session.state["answer"] == value
    assert await _same_in_memory(value) == dict(session.state)


def _telling(value: str) -> App:
    """An agent that keeps `value` in every scope and answers with it."""

    def keep(callback_context: CallbackContext) -> types.Content:
        for key in ("kept", "user:kept", "app:kept", "temp:kept"):
            callback_context.state[key] = value
        callback_context.state["answer"] = value
        return types.Content(role="model", parts=[types.Part(text=f"kept {value}")])

    agent = LlmAgent(name="root", model=ScriptedLlm(), before_agent_callback=keep, tools=[look])
    return App(name=APP, root_agent=agent)


async def _same_in_memory(value: str) -> dict[str, Any]:
    memory = InMemorySessionService()
    state = {"created": value, "user:created": value, "app:created": value}
    await memory.create_session(app_name=APP, user_id=USER, session_id=SESSION, state=state)
    runner = Runner(app=_telling(value), session_service=memory)
    await perform(Say("go", state={"given": value, "deep": {"list": [value]}}), runner, Notes())
    return dict((await load(memory, APP)).state)
