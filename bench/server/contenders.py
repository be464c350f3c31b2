"""The servers that are measured: `lango serve`, `adk api_server`, and the least that could serve.

All serve the same agent. ADK's and ours keep sessions in PostgreSQL, each in a database of its own.
"""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from bench.events import APP, USER
from bench.pg import connect, own_database
from bench.server.http_client import Request, ask
from bench.server.process import ROOT, SCRIPTS, Server, cpu_of, free_port, server_process
from bench.store.ours import Lango
from lango.store.keys import KeyStore
from lango.store.sessions.store import SqlSessionStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from bench.pg import Connection

OURS: Final = "lango serve"
ADK: Final = "adk api_server"
BARE: Final = "bare FastAPI and Runner"
AGENT: Final = "server_agent"
SESSIONS: Final = "/v1/sessions"
_AGENT_FOLDER: Final = Path(__file__).with_name(AGENT)
_BACKENDS: Final = """
select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class Api:
    """The requests for sessions and turns of a server, and the marks in its stream."""

    new_session: Request
    turn: Callable[[str, str], Request]  # of a session's id and a message
    word: bytes  # stands in the first event that has words of the answer
    end: bytes  # stands in the last event of a turn that went well


@dataclass(frozen=True, slots=True)
class Contender:
    """A server under measurement."""

    name: str
    api: Api
    server: Server
    database: Connection | None = None

    async def session(self) -> str:
        """A new session, by id."""
        return str((await ask(self.server.base, self.api.new_session)).json()["id"])

    async def database_cpu(self) -> dict[int, float]:
        """CPU seconds of the database's processes that serve it now, by their ids."""
        if self.database is None:
            return {}
        rows = await self.database.fetch(_BACKENDS)
        return {row["pid"]: cpu_of(row["pid"]) for row in rows}


@asynccontextmanager
async def bare(folder: Path) -> AsyncGenerator[Contender]:
    """The bare server."""
    port = free_port()
    command = [sys.executable, "-m", "bench.server.bare", str(port)]
    api = Api(
        Request("/sessions", {}),
        lambda session, message: Request("/turns", {"session": session, "message": message}),
        word=b'"partial":true',
        end=b"over.",
    )
    async with server_process(command, folder, port, "/openapi.json") as server:
        yield Contender(BARE, api, server)


@asynccontextmanager
async def adk(folder: Path, url: str) -> AsyncGenerator[Contender]:
    """ADK's own server on PostgreSQL."""
    port = free_port()
    command = [
        *(str(SCRIPTS / "adk"), "api_server", "--port", str(port), "--log_level", "warning"),
        *("--session_service_uri", url.replace("postgresql://", "postgresql+asyncpg://", 1)),
        *("--artifact_service_uri", "memory://", str(_AGENT_FOLDER)),
    ]
    new_session = Request(f"/apps/{AGENT}/users/{USER}/sessions", {})
    api = Api(new_session, _adk_turn, word=b'"partial":true', end=b"over.")
    connection = await connect(url)
    try:
        async with server_process(command, folder, port, "/list-apps") as server:
            yield Contender(ADK, api, server, connection)
    finally:
        await connection.close()


def _adk_turn(session: str, message: str) -> Request:
    new_message = {"role": "user", "parts": [{"text": message}]}
    body = {"appName": AGENT, "userId": USER, "sessionId": session, "newMessage": new_message}
    return Request("/run_sse", {**body, "streaming": True})


@asynccontextmanager
async def ours(
    folder: Path,
    url: str,
    *,
    agent: str = f"bench.server.{AGENT}.agent:root_agent",
    more: str = "",
    first: Path | None = None,
) -> AsyncGenerator[Contender]:
    """`lango serve` with its worker and a key.

    `more` is added to its settings; modules in the folder `first` go before those of their name.
    """
    key = await _key(url)
    settings = f"apps: {{{APP}: '{agent}'}}\n{more}"
    (folder / "lango.yaml").write_text(settings, encoding="utf-8")
    port = free_port()
    command = [str(SCRIPTS / "lango"), "serve", "--port", str(port)]
    connection = await connect(url)
    environment = {"LANGO_STORE__URL": url}
    if first is not None:
        environment["PYTHONPATH"] = f"{first}{os.pathsep}{ROOT}"
    try:
        async with server_process(command, folder, port, "/readyz", environment) as server:
            yield Contender(OURS, _our_api(key), server, connection)
    finally:
        await connection.close()


def _our_api(key: str) -> Api:
    bearer = {"Authorization": f"Bearer {key}"}
    streamed = bearer | {"Accept": "text/event-stream"}
    return Api(
        Request(SESSIONS, {"app": APP}, bearer),
        lambda session, message: Request(
            f"{SESSIONS}/{session}/turns", {"message": message}, streamed
        ),
        word=b"event: message.delta",
        end=b"event: completed",
    )


async def _key(url: str) -> str:
    """A key of a user, on a database whose tables are made here."""
    await Lango.prepare(url)
    async with SqlSessionStore(url) as store:
        return (await KeyStore(store.database).create("", user=USER)).text


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    """The three servers, running."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        enter = stack.enter_async_context
        yield [
            await enter(bare(folder)),
            await enter(adk(folder, await enter(own_database("_adk")))),
            await enter(ours(folder, await enter(own_database("_ours")))),
        ]
