"""ADK's own models: the same requests with lango's sessions as with ADK's, and typed errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.models.google_llm import Gemini
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai import types

from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.turns.events import Failed, error_data
from lango.testing.wires import Call, Refusal, ScriptedAnswer, WireServer
from lango.testing.wires.script import Trouble
from tests.adk.runner.tools import look, ticket
from tests.adk.runner.turns import once, runner_of

CALLS = (Call("look", '{"number": 1}', "c1"), Call("ticket", '{"subject": "late"}', "c2"))
RESULT = types.FunctionResponse(id="c2", name="ticket", response={"status": "closed"})
SAID = [
    types.UserContent("Look, and open a ticket."),
    types.UserContent(parts=[types.Part(function_response=RESULT)]),
    types.UserContent("And now?"),
]
USER, SESSION = "ann", "first"


@pytest.fixture
async def gemini(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WireServer]:
    answers = (ScriptedAnswer(calls=CALLS), ScriptedAnswer("Done."))
    async with WireServer("gemini", *answers) as server:
        monkeypatch.setenv("GOOGLE_API_KEY", "test-key")
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        yield server


async def requests_of(server: WireServer, service: Callable[[], BaseSessionService]) -> list[Any]:
    """The contents of every request of a talk that loads its session for each turn."""
    server.say(ScriptedAnswer(calls=CALLS), ScriptedAnswer("Done."))
    server.requests.clear()
    model = Gemini(model="gemini-2.5-flash")
    agent = LlmAgent(name="root", model=model, tools=[look, LongRunningFunctionTool(ticket)])
    await service().create_session(app_name="app", user_id=USER, session_id=SESSION)
    how = RunConfig.model_validate({"streaming_mode": "sse"})
    for message in SAID:
        runner = Runner(app_name="app", agent=agent, session_service=service())
        async for _ in runner.run_async(
            user_id=USER, session_id=SESSION, new_message=message, run_config=how
        ):
            pass
    return [request.body["contents"] for request in server.requests]


async def test_the_requests_are_those_of_adk(
    gemini: WireServer, store_url: str, tenant: str
) -> None:
    memory = InMemorySessionService()
    expected = await requests_of(gemini, lambda: memory)
    async with SessionServiceAdapter(store_url, tenant=tenant) as sessions:
        reloaded = await requests_of(gemini, lambda: sessions)
    assert gemini.refused == []
    assert len(expected) == 4
    assert reloaded == expected


@pytest.mark.parametrize(
    ("trouble", "named"), [("no_key", "AuthenticationError"), ("rate_limited", "RateLimitedError")]
)
async def test_an_error_of_the_sdk_is_a_model_error(
    trouble: Trouble, named: str, gemini: WireServer
) -> None:
    gemini.say(Refusal(trouble))
    agent = LlmAgent(name="root", model=Gemini(model="gemini-2.5-flash"))
    end = (await once(runner_of(agent)))[-1]
    assert isinstance(end, Failed)
    assert error_data(end.error)["type"] == named
    assert type(end.error.__cause__).__module__.startswith("google.")
