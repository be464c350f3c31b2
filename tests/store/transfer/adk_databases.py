"""Databases as ADK itself makes them: its own services and Runner, a model without a network."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import sqlalchemy as sa
from google.adk.agents import LlmAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.events._rewind_events import (
    _apply_rewinds,  # pyright: ignore[reportPrivateUsage] - ADK's word on what a rewind leaves
)
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from lango.adk.sessions.encode import entry_of
from lango.adk.sessions.normalise import normalise
from lango.store.schema.tables import (
    app_states,
    artifacts,
    messages,
    sessions,
    state_changes,
    user_states,
)
from lango.store.transfer.adk_source import AdkSource
from tests.adk.runner.scripted import ScriptedLlm
from tests.store.rows import beside
from tests.support.databases import server_url

Kind = Literal["postgresql", "sqlite", "file"]
KINDS: Final[tuple[Kind, ...]] = ("postgresql", "sqlite", "file")
APP: Final = "shop"
USER: Final = "ann"
BUSY: Final = "busy"
"""The session in which everything happens that ADK can do to one."""


def service_on(url: str) -> BaseSessionService:
    """ADK's service for a URL as users give it to lango: a bare path is its SQLite file."""
    if "://" not in url:
        return SqliteSessionService(url)
    return DatabaseSessionService(url.replace("://", f"+{_DRIVERS[url.partition(':')[0]]}://", 1))


_DRIVERS: Final = {"postgresql": "asyncpg", "sqlite": "aiosqlite"}


@asynccontextmanager
async def empty_database(kind: Kind, folder: Path) -> AsyncGenerator[str]:
    """A database without tables; its URL, or its path."""
    name = f"adk_{uuid.uuid4().hex}"
    if kind != "postgresql":
        path = folder / f"{name}.db"
        yield str(path) if kind == "file" else f"sqlite:///{path}"
        return
    url = make_url(server_url())
    await on_server(f'CREATE DATABASE "{name}" TEMPLATE template0')
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        await on_server(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


async def on_server(statement: str) -> None:
    """Run a statement that makes or drops a database."""
    url = make_url(server_url()).set(drivername="postgresql+asyncpg")
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        await connection.exec_driver_sql(statement)
    await engine.dispose()


def note(tool_context: ToolContext, key: str, value: Any) -> dict[str, Any]:
    """Write to a state of any scope."""
    tool_context.state[key] = value
    return {"noted": value}


def ask(question: str) -> None:
    """Ask a person, who will answer some day."""
    del question


def large(size: int) -> dict[str, str]:
    """An output too large for a row."""
    return {"text": "x" * size}


def runner_on(service: BaseSessionService, app_name: str = APP) -> Runner:
    """A Runner with an agent that does what the user's text says."""
    agent = LlmAgent(
        name="clerk", model=ScriptedLlm(), tools=[note, LongRunningFunctionTool(ask), large]
    )
    app = App(
        name=app_name, root_agent=agent, resumability_config=ResumabilityConfig(is_resumable=True)
    )
    return Runner(app=app, session_service=service)


async def say(runner: Runner, session_id: str, *parts: types.Part | str, user: str = USER) -> str:
    """One turn; the invocation's id."""
    text = [types.Part(text=part) if isinstance(part, str) else part for part in parts]
    message = types.Content(role="user", parts=text)
    invocation = ""
    async for event in runner.run_async(user_id=user, session_id=session_id, new_message=message):
        invocation = event.invocation_id
    return invocation


async def fill(service: BaseSessionService) -> None:
    """Sessions of two apps and three users, one of them with a history of every kind."""
    runner = runner_on(service)
    state = {"step": 0, "app:currency": "EUR", "user:name": "Ann", "ratio": 0.1 + 0.2}
    await service.create_session(app_name=APP, user_id=USER, session_id=BUSY, state=state)
    await say(runner, BUSY, "hello")
    await say(runner, BUSY, 'do note {"key": "step", "value": 1}')
    wrong = await say(
        runner,
        BUSY,
        'do note {"key": "step", "value": 2} and note {"key": "user:vip", "value": true}',
    )
    await say(runner, BUSY, 'do note {"key": "doomed", "value": [1]}')
    await runner.rewind_async(user_id=USER, session_id=BUSY, rewind_before_invocation_id=wrong)
    image = types.Blob(data=bytes(range(256)) * 64, mime_type="image/png")
    await say(runner, BUSY, "look", types.Part(inline_data=image), "well?")
    await say(runner, BUSY, 'do large {"size": 300000}')
    await _append_odd_events(service)
    await say(runner, BUSY, 'do ask {"question": "may I?"}')
    await service.create_session(app_name=APP, user_id="bob", session_id="b1")
    await say(runner, "b1", "hello", user="bob")
    await service.create_session(app_name=APP, user_id="bob", session_id="b2", state={"user:x": 1})
    await service.create_session(app_name="other", user_id=USER, session_id=BUSY, state={"a": None})


async def _append_odd_events(service: BaseSessionService) -> None:
    """What a Runner makes only in long sessions, and ties of the clock."""
    session = await service.get_session(app_name=APP, user_id=USER, session_id=BUSY)
    assert session is not None
    summary = types.Content(role="model", parts=[types.Part(text="so far: small talk")])
    compaction = EventCompaction(
        start_timestamp=session.events[0].timestamp,
        end_timestamp=session.events[1].timestamp,
        compacted_content=summary,
    )
    now = session.events[-1].timestamp + 0.001
    odd = [
        EventActions(state_delta={"step": 5, "app:open": True}),
        EventActions(compaction=compaction),
        EventActions(),
        EventActions(state_delta={"user:seen": 1.0, "größe": "ja"}),
        EventActions(artifact_delta={"plot.png": 0}),
    ]
    for actions in odd:
        event = Event(author="clerk", invocation_id="e-odd", timestamp=now, actions=actions)
        await service.append_event(session, event)


async def close(service: BaseSessionService) -> None:
    """Close whichever of ADK's services it is."""
    assert isinstance(service, (DatabaseSessionService, SqliteSessionService))
    await service.close()


@asynccontextmanager
async def adk_service(url: str) -> AsyncGenerator[BaseSessionService]:
    """ADK's service, for as long as it is needed."""
    service = service_on(url)
    try:
        yield service
    finally:
        await close(service)


async def session_in_adk(url: str, app: str, user: str, session_id: str) -> Session:
    async with adk_service(url) as service:
        session = await service.get_session(app_name=app, user_id=user, session_id=session_id)
    assert session is not None
    return session


async def names_in_adk(url: str) -> list[tuple[str, str, str]]:
    async with AdkSource(url) as source:
        return [(one.app_name, one.user_id, one.id) async for one in source.sessions()]


def kept(events: list[Event]) -> list[Event]:
    """What a load of ours gives of ADK's events."""
    live = {event.id for event in _apply_rewinds(events)}
    expected: list[Event] = []
    for event in events:
        entry = entry_of(event)[1]
        rewind = event.actions.rewind_before_invocation_id is not None
        if entry is not None and not entry.state_only and (event.id in live or rewind):
            expected.append(normalise(event))
    return expected


async def rows_of(url: str, tenant: str) -> dict[str, list[dict[str, Any]]]:
    """Everything the tenant has, without the numbers and times that a database gives."""
    statement = sa.select(sessions.c.pk).where(sessions.c.tenant == tenant)
    found: dict[str, list[dict[str, Any]]] = {}
    async with beside(url) as connection:
        for table in (sessions, app_states, user_states, artifacts):
            rows = await connection.execute(sa.select(table).where(table.c.tenant == tenant))
            found[table.name] = [dict(row) for row in rows.mappings()]
        for table in (messages, state_changes):
            joined = sa.select(table).where(table.c.session_pk.in_(statement)).order_by(table.c.seq)
            rows = await connection.execute(joined)
            found[table.name] = [dict(row) for row in rows.mappings()]
    for row in found["artifacts"]:
        del row["created"]
    for table_rows in found.values():
        for row in table_rows:
            for name in ("pk", "session_pk", "public_id", "tenant"):
                row.pop(name, None)
        table_rows.sort(key=repr)
    return found
