"""What scenario tests are made of: a service on either database, turns, and rows by plain SQL.

One short conversation is made in two ways, by events made by hand and by a real Runner: the user
asks, the agent calls a tool that sets a state value, the tool answers, the agent reports.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from google.adk.agents import LlmAgent
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types

from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.sessions.session import SessionAdapter
from lango.core.context.tokens import message_tokens
from lango.core.messages.messages import Message, ToolCall
from lango.store.db import engines
from lango.store.schema import tables
from tests.adk.runner.scripted import REQUESTS, Request, ScriptedLlm
from tests.adk.runner.tools import look, remember

APP, USER, SESSION, ROOT = "app", "user-1", "session-1", "root"

ASK = 'do remember {"key": "number", "value": "123"}'
ARGUMENTS = {"key": "number", "value": "123"}
RESULT = {"remembered": "number"}
REPORT = f"done: {json.dumps([RESULT])}"


class Service(SessionServiceAdapter):
    """Remembers the session objects it handed to ADK."""

    handed: list[SessionAdapter]

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        session = await super().get_session(
            app_name=app_name, user_id=user_id, session_id=session_id, config=config
        )
        if isinstance(session, SessionAdapter):
            self.handed.append(session)
        return session


def service_on(url: str, tenant: str, **options: Any) -> Service:
    """A service of its own: two of them share nothing but the database."""
    given: dict[str, Any] = {"root_agent_name": ROOT, **options}
    service = Service(url, tenant=tenant, **given)
    service.handed = []
    return service


async def create(service: Service, state: dict[str, Any] | None = None) -> SessionAdapter:
    session = await service.create_session(
        app_name=APP, user_id=USER, session_id=SESSION, state=state
    )
    assert isinstance(session, SessionAdapter)
    return session


async def load(service: Service) -> SessionAdapter:
    """The session as ADK gets it."""
    session = await service.get_session(app_name=APP, user_id=USER, session_id=SESSION)
    assert isinstance(session, SessionAdapter)
    return session


async def reload(url: str, tenant: str, **options: Any) -> SessionAdapter:
    """The session as a service that has never seen it loads it."""
    async with service_on(url, tenant, **options) as service:
        return await load(service)


# --- events by hand --------------------------------------------------------------------------


def event(author: str, *parts: types.Part, role: str = "", **fields: Any) -> Event:
    content = types.Content(role=role or ("user" if author == "user" else "model"), parts=[*parts])
    given: dict[str, Any] = {"invocation_id": "turn-1", **fields}
    return Event(author=author, content=content, **given)


def text(words: str) -> types.Part:
    return types.Part(text=words)


def call(call_id: str | None, name: str, args: dict[str, Any]) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=call_id, name=name, args=args))


def response(call_id: str | None, name: str, output: dict[str, Any]) -> types.Part:
    answer = types.FunctionResponse(id=call_id, name=name, response=output)
    return types.Part(function_response=answer)


def state_only(delta: dict[str, Any]) -> Event:
    return Event(author=ROOT, invocation_id="turn-1", actions=EventActions(state_delta=delta))


# --- the conversation, told twice ------------------------------------------------------------


async def by_hand(service: Service) -> SessionAdapter:
    """The conversation appended event by event; the session object they were appended to."""
    session = await create(service)
    events_read = [
        event("user", text(ASK)),
        event(ROOT, call("call-1", "remember", ARGUMENTS)),
        event(
            ROOT,
            response("call-1", "remember", RESULT),
            role="user",  # as ADK itself has it
            actions=EventActions(state_delta={"number": "123"}),
        ),
        event(ROOT, text(REPORT)),
    ]
    for one in events_read:
        await service.append_event(session, one)
    return session


async def by_runner(service: Service) -> SessionAdapter:
    """The conversation as a real Runner leads it; the session object that the Runner held."""
    await create(service)
    await turn(service, ASK)
    return service.handed[-1]


Telling = Callable[[Service], Awaitable[SessionAdapter]]
TELLINGS: tuple[Telling, ...] = (by_hand, by_runner)


def conversation(session: SessionAdapter) -> list[Message]:
    """The history that the session must have, by either way."""
    call_id = next(one.id for message in session.history for one in message.tool_calls)
    arguments, result = compact(ARGUMENTS), compact(RESULT)
    return [
        Message("user", ASK, (), "user"),
        Message("assistant", "", (ToolCall(call_id, "remember", input=arguments),), ROOT),
        Message("tool", result, (ToolCall(call_id, "remember", output=result),), ROOT),
        Message("assistant", REPORT, (), ROOT),
    ]


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


# --- a real Runner ---------------------------------------------------------------------------


def agent(**options: Any) -> LlmAgent:
    return LlmAgent(name=ROOT, model=ScriptedLlm(), tools=[remember, look], **options)


async def turn(
    service: Service, words: str, *, stop_after: int = 0, root: LlmAgent | None = None
) -> list[Request]:
    """One turn of a real Runner; the requests its model got."""
    runner = Runner(app_name=APP, agent=root or agent(), session_service=service)
    requests: list[Request] = []
    token = REQUESTS.set(requests)
    message = types.Content(role="user", parts=[text(words)])
    seen = 0
    try:
        async with aclosing(
            runner.run_async(user_id=USER, session_id=SESSION, new_message=message)
        ) as events:
            async for _ in events:
                seen += 1
                if seen == stop_after:
                    break
    finally:
        REQUESTS.reset(token)
    return requests


def texts_of(request: Request) -> list[str]:
    return [part.text for content in request for part in content.parts or [] if part.text]


# --- rows ------------------------------------------------------------------------------------


async def rows(url: str, tenant: str) -> list[sa.Row[Any]]:
    """The rows of the session, read with plain SQL."""
    engine = engines.create_engine(engines.store_url(url))
    statement = (
        sa.select(tables.messages)
        .join(tables.sessions, tables.sessions.c.pk == tables.messages.c.session_pk)
        .where(tables.sessions.c.tenant == tenant)
        .order_by(tables.messages.c.seq)
    )
    try:
        async with engine.connect() as connection:
            return list((await connection.execute(statement)).all())
    finally:
        await engine.dispose()


async def insert_rows(url: str, tenant: str, history: Sequence[Message]) -> None:
    """Write rows as an older system left them: what no column of its own said is empty."""
    engine = engines.create_engine(engines.store_url(url))
    try:
        async with engine.begin() as connection:
            condition = tables.sessions.c.tenant == tenant
            pk = await connection.scalar(sa.select(tables.sessions.c.pk).where(condition))
            total = 0
            for seq, message in enumerate(history, start=1):
                tokens = message_tokens(message)
                total += tokens
                row = _legacy_row(message, seq) | {"session_pk": pk, "cum_tokens": total}
                await connection.execute(
                    sa.insert(tables.messages).values(row | {"tokens": tokens})
                )
            counts: dict[str, Any] = {
                "next_seq": len(history) + 1,
                "turn_seq": len(history) + 1,
                "message_count": len(history),
                "total_tokens": total,
            }
            await connection.execute(sa.update(tables.sessions).where(condition).values(counts))
    finally:
        await engine.dispose()


def _legacy_row(message: Message, seq: int) -> dict[str, Any]:
    calls = [
        {"id": one.id, "name": one.name}
        | ({"input": json.loads(one.input)} if one.input else {})
        | ({"output": json.loads(one.output)} if one.output else {})
        for one in message.tool_calls
    ]
    return {
        "seq": seq,
        "event_id": f"old-{seq}",
        "invocation_id": "",
        "role": message.role,
        "author": message.author,
        "content": message.content,
        "tool_calls": calls or None,
        "created": datetime(2024, 1, 1, tzinfo=UTC),
        "timestamp": 1_704_067_200.0,
        "event": None,
        "changes": None,
    }
