"""A server for tests: callers known by name, on the store and workers of a workspace."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI, Request

from faults.turns.workspace import TurnProcess, Workspace, turn_process
from lango.errors import UnauthorizedError
from lango.server.app import create_app
from lango.server.auth.callers import Caller, Identity
from lango.server.backend import ServerOptions
from lango.server.listening import listen
from lango.server.process import StopSignal, serve
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from lango.turns.service import Turns
from lango.turns.worker import TurnWorker

CHAT = frozenset({"chat"})
PATIENCE = 60.0


class NamedCallers(Identity):
    """Maps bearers to callers: ann and bob, an ann of another tenant, and one without a user."""

    def __init__(self, tenant: str) -> None:
        other = f"{tenant}-other"
        self.callers = {
            "ann": Caller(tenant, "ann", CHAT, "key_ann"),
            "bob": Caller(tenant, "bob", CHAT, "key_bob"),
            "other-ann": Caller(other, "ann", CHAT, "key_other"),
            "no-user": Caller(tenant, None, frozenset({"act_as"}), "key_no_user"),
        }

    async def caller(self, request: Request) -> Caller:
        _, _, token = request.headers.get("authorization", "").partition(" ")
        if token not in self.callers:
            raise UnauthorizedError
        return self.callers[token]


class ProcessBackend:
    """What an application gives a server, from the parts of a process."""

    def __init__(self, process: TurnProcess) -> None:
        self._process = process

    @property
    def store(self) -> SqlSessionStore:
        return self._process.store

    def turns_for(self, tenant: str) -> Turns:
        return Turns(self._process.store, self._process.engine, tenant=tenant)


@dataclass
class ServedApp:
    """A server that is only called, not listened to, and the process it is in."""

    process: TurnProcess
    tenant: str
    app: FastAPI

    @property
    def agent(self) -> str:
        return self.process.workspace.app

    def client(self, name: str | None = "ann", **headers: str) -> httpx.AsyncClient:
        return client_of(httpx.ASGITransport(self.app), "http://localhost", name, **headers)

    def worker(self, **options: Any) -> TurnWorker:
        return self.process.worker(**options)

    def turns(self, name: str = "ann") -> Turns:
        return Turns(self.process.store, self.process.engine, tenant=self.callers[name].tenant)

    @property
    def callers(self) -> dict[str, Caller]:
        return self.app.state.identity.callers

    def user(self, name: str) -> SessionKey:
        """The key of a user, without a session."""
        return SessionKey(self.callers[name].tenant, self.agent, name, "")

    async def session(self, name: str = "ann", **body: Any) -> str:
        """The id of a new session."""
        async with self.client(name) as client:
            made = await client.post("/v1/sessions", json={"app": self.agent, **body})
        assert made.status_code == 201, made.text
        return made.json()["id"]

    async def file(self, session: str, name: str, data: bytes, kind: str) -> dict[str, Any]:
        """What is said of a new file of ann's."""
        async with self.client(content_type=kind) as client:
            path = f"/v1/sessions/{session}/files"
            made = await client.post(path, params={"name": name}, content=data)
        assert made.status_code == 201, made.text
        return made.json()

    async def turn(self, session: str, message: str, name: str = "ann", **body: Any) -> str:
        """The id of a new turn."""
        path = f"/v1/sessions/{session}/turns"
        async with self.client(name) as client:
            made = await client.post(path, json={"message": message, **body})
        assert made.status_code == 202, made.text
        return made.json()["id"]


def client_of(
    transport: httpx.AsyncBaseTransport | None, url: str, name: str | None, **headers: str
) -> httpx.AsyncClient:
    known = {"authorization": f"Bearer {name}"} if name else {}
    sent = known | {each.replace("_", "-"): value for each, value in headers.items()}
    return httpx.AsyncClient(transport=transport, base_url=url, headers=sent, timeout=PATIENCE)


@asynccontextmanager
async def served_app(
    workspace: Workspace, tenant: str, **options: Any
) -> AsyncGenerator[ServedApp]:
    async with turn_process(workspace, dead_after=1.5) as process:
        server_options = ServerOptions(apps=(workspace.app,), **options)
        app = create_app(ProcessBackend(process), NamedCallers(tenant), server_options)
        yield ServedApp(process, tenant, app)


@dataclass
class Live:
    """A server that listens on loopback."""

    served: ServedApp
    url: str
    stop: StopSignal
    serving: asyncio.Task[None]

    def client(
        self, name: str | None = "ann", *, root: str = "", **headers: str
    ) -> httpx.AsyncClient:
        return client_of(None, f"{self.url}{root}", name, **headers)


@asynccontextmanager
async def live(
    served: ServedApp, worker: TurnWorker | None = None, *, drain: float = 5.0
) -> AsyncGenerator[Live]:
    """Listen from here to the end of the block."""
    socket, stop, ready = listen("127.0.0.1", 0), StopSignal(), asyncio.Event()
    url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    serving = asyncio.create_task(
        serve(served.app, socket, worker=worker, stop=stop, drain=drain, on_ready=ready.set)
    )
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        yield Live(served, url, stop, serving)
    finally:
        stop.ask()
        await serving
