"""ADK's own models: the same requests with lango's sessions as with ADK's, and typed errors."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
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
from lango.testing.wires import Broken, Call, Refusal, ScriptedAnswer, WireServer
from lango.testing.wires.script import Trouble
from tests.adk.runner.tools import look, ticket
from tests.adk.runner.turns import agent, call, once, runner_of

CALLS = (Call("look", '{"number": 1}', "c1"), Call("ticket", '{"subject": "late"}', "c2"))
RESULT = types.FunctionResponse(id="c2", name="ticket", response={"status": "closed"})
SAID = [
    types.UserContent("Look, and open a ticket."),
    types.UserContent(parts=[types.Part(function_response=RESULT)]),
    types.UserContent("And now?"),
]
USER, SESSION = "ann", "first"
CLIENTS = ("httpx", "aiohttp")
BRIEF = {"http_options": types.HttpOptions(timeout=300)}  # milliseconds


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


@pytest.fixture(params=CLIENTS)
def http_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The HTTP client that google-genai uses: aiohttp if that is installed."""
    if request.param == "httpx":
        monkeypatch.setattr("google.genai._api_client.has_aiohttp", False)
    return request.param


async def error_of(model: Gemini) -> Exception:
    end = (await once(runner_of(LlmAgent(name="root", model=model))))[-1]
    assert isinstance(end, Failed)
    return end.error


def assert_named(error: Exception, named: str, library: str) -> None:
    """A retryable model error, whose cause the log has as the HTTP client raised it."""
    assert error_data(error)["type"] == named
    assert error_data(error)["retryable"] is True
    modules = {kind.__module__.partition(".")[0] for kind in type(error.__cause__).__mro__}
    assert library in modules


async def test_a_refused_connection_is_a_model_error(
    http_client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "test-key")
    with socket.socket() as closed:  # bound, and never listening
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", address)
        error = await error_of(Gemini(model="gemini-2.5-flash"))
    assert_named(error, "ModelUnavailableError", http_client)


async def test_an_answer_that_is_cut_off_is_a_model_error(
    http_client: str, gemini: WireServer
) -> None:
    gemini.say(Broken("cut"))
    error = await error_of(Gemini(model="gemini-2.5-flash"))
    assert_named(error, "ModelUnavailableError", http_client)


async def test_a_silent_model_is_a_model_error(http_client: str, gemini: WireServer) -> None:
    gemini.say(Broken("stall"))
    error = await error_of(Gemini(model="gemini-2.5-flash", client_kwargs=BRIEF))
    library = "httpx" if http_client == "httpx" else "builtins"  # TimeoutError
    assert_named(error, "ModelTimeoutError", library)


async def fetch() -> str:
    """Fetch a page that cannot be reached."""
    raise httpx.ConnectError("refused")


async def test_a_tool_that_cannot_connect_is_an_error_of_the_agent_s_code() -> None:
    end = (await once(runner_of(agent("root", call("fetch"), tools=[fetch]))))[-1]
    assert isinstance(end, Failed)
    assert isinstance(end.error, httpx.ConnectError)
