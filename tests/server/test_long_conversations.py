"""Summaries of long conversations, as the clients of ADK's and OpenAI's APIs see them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import pytest
from google.adk.cli.api_server import RunAgentRequest
from google.adk.cli.conformance.adk_web_server_client import AdkWebServerClient
from google.adk.events.event import Event
from google.genai import types

from faults.turns.processes import Strike, WorkerProcess
from faults.turns.workspace import Workspace
from lango.providers.scripted import ScriptedProvider
from tests.adk.durable.talks import FACT
from tests.server.adk.test_clients import Local
from tests.server.adk.twins import Caller, finals, partial_text, twins
from tests.server.openai.clients import answered, assistant, sdk, streamed, user
from tests.server.served_apps import Live, ServedApp, live, served_app
from tests.server.summarising import (
    EVERY,
    app_of,
    check_summaries,
    echo,
    summarise,
    summarising_worker,
)

TURNS = 4 * EVERY
ASK = {"whole": answered, "streamed": streamed}


def text(number: int) -> str:
    return FACT if number == 0 else f"message {number}"


def answer_to(number: int) -> str:
    return f"Heard: {text(number)}"


def line_of(event: Event) -> str:
    """The text of a whole message; empty for other events."""
    parts = (event.content and event.content.parts) or []
    return "" if event.partial else "".join(part.text or "" for part in parts)


def check_request(model: ScriptedProvider) -> None:
    """The newest request has the fact, and little of the conversation."""
    texts = [message.content for message in model.requests[-1].messages]
    assert any(FACT in text for text in texts)
    assert len(texts) < 2 * EVERY + 2


@pytest.fixture
async def adk(sqlite_workspace: Workspace, tenant: str) -> AsyncGenerator[ServedApp]:
    """A server for ADK's own client, which sends no credential."""
    async with served_app(sqlite_workspace, tenant, adk_routes="/adk") as opened:
        opened.app.state.identity = Local(tenant)
        yield opened


async def create(server: Live) -> None:
    """Create ann's session in ADK's API."""
    async with server.client(root="/adk/") as web:
        assert (await Caller(web, server.served.agent).create()).status_code == 200


async def test_adk_s_client(adk: ServedApp) -> None:
    model = ScriptedProvider(rule=echo)
    ids: dict[str, Any] = {"app_name": adk.agent, "user_id": "ann", "session_id": "s1"}
    async with (
        live(adk, summarising_worker(adk.process, adk.tenant, model)) as server,
        AdkWebServerClient(f"{server.url}/adk", timeout=60.0) as client,
    ):
        await create(server)
        for number in range(TURNS):
            message = types.UserContent(text(number))
            request = RunAgentRequest(**ids, new_message=message, streaming=True)
            events = [event async for event in client.run_agent(request)]
            assert [line for line in map(line_of, events) if line] == [answer_to(number)]
        session = await client.get_session(**ids)
    check_request(model)
    assert [line for line in map(line_of, session.events) if line] == [
        line for number in range(TURNS) for line in (text(number), answer_to(number))
    ]
    await check_summaries(adk.process, adk.tenant, TURNS // EVERY)


@pytest.mark.parametrize("how", ASK)
async def test_openai_s_client(how: str, sqlite_served: ServedApp) -> None:
    model, messages = ScriptedProvider(rule=echo), list[dict[str, str]]()
    worker = summarising_worker(sqlite_served.process, sqlite_served.tenant, model)
    async with live(sqlite_served, worker) as server, sdk(server) as client:
        for number in range(TURNS):
            messages.append(user(text(number)))
            answer = await ASK[how](client, sqlite_served.agent, messages)
            assert answer == answer_to(number)
            messages.append(assistant(answer))
    check_request(model)
    await check_summaries(sqlite_served.process, sqlite_served.tenant, TURNS // EVERY)


async def test_an_edited_message_is_not_answered_with_a_summary_of_what_came_after_it(
    sqlite_served: ServedApp,
) -> None:
    model, messages = ScriptedProvider(rule=echo), list[dict[str, str]]()
    worker = summarising_worker(
        sqlite_served.process, sqlite_served.tenant, model, fact=text(EVERY + 2)
    )
    async with live(sqlite_served, worker) as server, sdk(server) as client:
        for number in range(2 * EVERY + 1):
            messages += [user(text(number)), assistant(answer_to(number))]
            await answered(client, sqlite_served.agent, messages[:-1])
        assert text(EVERY + 2) in str(model.requests[-1].messages)
        await answered(client, sqlite_served.agent, [*messages[: 2 * EVERY + 2], user("edited")])
    assert text(EVERY) in str(model.requests[-1].messages)
    assert text(EVERY + 2) not in str(model.requests[-1].messages)


@pytest.mark.parametrize(
    "options", [{"turns": 2}, {"tokens": 1, "keep_events": 2}], ids=["after", "within"]
)
async def test_events_and_history_are_those_of_adk_s_own_server(
    options: dict[str, int], adk_sqlite_served: ServedApp
) -> None:
    def make() -> Any:
        return app_of(adk_sqlite_served.agent, options)

    async with twins(adk_sqlite_served, make) as pair:
        for number in range(5):
            said = f"message {number}, and a few words more"
            theirs, ours = await pair.both(lambda caller, said=said: caller.stream(said))
            assert ours == theirs
        theirs, ours = await pair.both(Caller.get)
    expected = [summary["compactedContent"] for summary in taken_out(theirs)]
    assert len(expected) > 1
    assert [summary["compactedContent"] for summary in taken_out(ours)] == expected
    assert ours == theirs


def taken_out(session: dict[str, Any]) -> list[dict[str, Any]]:
    """The summaries of a session, removed from it: they say which times they cover."""
    actions = [event["actions"] for event in session["events"]]
    return [action.pop("compaction") for action in actions if "compaction" in action]


async def stream_adk(server: Live, number: int) -> str:
    async with server.client(root="/adk/") as web:
        frames = await Caller(web, server.served.agent).stream(text(number), streaming=True)
    (final,) = finals(frames)
    assert [part["text"] for part in final["content"]["parts"]] == [partial_text(frames)]
    return partial_text(frames)


async def stream_openai(server: Live, number: int) -> str:
    pairs = [(user(text(n)), assistant(answer_to(n))) for n in range(number)]
    messages = [message for pair in pairs for message in pair]
    async with sdk(server) as client:
        return await streamed(client, server.served.agent, [*messages, user(text(number))])


@pytest.mark.parametrize(
    ("ask", "point"),
    [(stream_adk, "summary.start"), (stream_openai, "summary.end")],
    ids=["adk", "openai"],
)
async def test_a_worker_that_is_killed_while_it_summarises(
    ask: Callable[[Live, int], Awaitable[str]], point: str, adk_served: ServedApp
) -> None:
    workspace, tenant = adk_served.process.workspace, adk_served.tenant
    with ExitStack() as ending:

        def start(**options: Any) -> WorkerProcess:
            started = WorkerProcess(workspace, {"tenant": tenant, **options}, summarise)
            ending.callback(started.kill)
            return started

        doomed = await asyncio.to_thread(start, strike=Strike(point))
        async with live(adk_served) as server:
            if ask is stream_adk:
                await create(server)
            for number in range(EVERY - 1):
                assert await ask(server, number) == answer_to(number)
            asking = asyncio.ensure_future(ask(server, EVERY - 1))
            await asyncio.to_thread(doomed.join)
            assert doomed.is_struck
            await asyncio.to_thread(start)
            assert await asking == answer_to(EVERY - 1)
            assert await ask(server, EVERY) == answer_to(EVERY)
    await check_summaries(adk_served.process, tenant, 1)
