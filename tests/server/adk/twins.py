"""One agent behind ADK's own API server and behind lango's, called alike."""

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from unittest.mock import Mock

import httpx
from google.adk.agents import BaseAgent
from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.auth.credential_service.in_memory_credential_service import (
    InMemoryCredentialService,
)
from google.adk.cli.api_server import ApiServer
from google.adk.cli.utils.base_agent_loader import BaseAgentLoader
from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
from google.adk.sessions.in_memory_session_service import InMemorySessionService

from lango.adk.artifacts import SqlArtifactService
from lango.adk.durable.run import DurableAgent
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.turns.worker import TurnWorker
from tests.server.served_apps import PATIENCE, Live, ServedApp, live

MakeAgent = Callable[[], BaseAgent]
CHANGING = frozenset({"invocationId", "timestamp", "lastUpdateTime", "createTime", "canonicalUri"})
"""Fields whose values differ from run to run."""
_CALL_ID = re.compile(r"adk-[0-9a-f-]{36}")


def worker_of(served: ServedApp, make: MakeAgent) -> TurnWorker:
    """A worker with this agent alone."""
    store = served.process.store
    services = SessionServiceAdapter(store), SqlArtifactService(store)
    durable = DurableAgent(AgentRunner(make(), *services, name=served.agent), store)
    return TurnWorker(store, served.process.engine, {served.agent: durable})


class _Loader(BaseAgentLoader):
    def __init__(self, name: str, agent: BaseAgent) -> None:
        self._name, self._agent = name, agent

    def load_agent(self, agent_name: str) -> BaseAgent:
        if agent_name != self._name:
            raise ValueError(f"Agent not found: {agent_name}")
        return self._agent

    def list_agents(self) -> list[str]:
        return [self._name]


def adk_app(name: str, make: MakeAgent) -> Any:
    """ADK's own API server with this agent, in memory."""
    server = ApiServer(
        agent_loader=_Loader(name, make()),
        session_service=InMemorySessionService(),
        memory_service=InMemoryMemoryService(),
        artifact_service=InMemoryArtifactService(),
        credential_service=InMemoryCredentialService(),
        eval_sets_manager=Mock(),
        eval_set_results_manager=Mock(),
        agents_dir=".",
    )
    return server.get_fast_api_app()


@dataclass
class Caller:
    """A client of one of the servers."""

    web: httpx.AsyncClient
    app: str
    session: str = "s1"
    user: str = "ann"

    @property
    def sessions(self) -> str:
        return f"apps/{self.app}/users/{self.user}/sessions"

    def body(self, *parts: Any, **more: Any) -> dict[str, Any]:
        sent = [{"text": part} if isinstance(part, str) else part for part in parts]
        return {
            "appName": self.app,
            "userId": self.user,
            "sessionId": self.session,
            "newMessage": {"role": "user", "parts": sent},
            **more,
        }

    async def create(self, **body: Any) -> httpx.Response:
        return await self.web.post(self.sessions, json={"sessionId": self.session, **body})

    async def run(self, *parts: Any, **more: Any) -> httpx.Response:
        return await self.web.post("run", json=self.body(*parts, **more))

    async def stream(self, *parts: Any, **more: Any) -> list[dict[str, Any]]:
        """The frames of a stream."""
        response = await self.web.post("run_sse", json=self.body(*parts, **more))
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return frames_in(response.text)

    async def get(self) -> dict[str, Any]:
        response = await self.web.get(f"{self.sessions}/{self.session}")
        assert response.status_code == 200, response.text
        return response.json()


def frames_in(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


Do = Callable[[Caller], Awaitable[Any]]


@dataclass
class Twins:
    """Both servers."""

    adk: Caller
    ours: Caller
    live: Live

    async def both(self, do: Do) -> tuple[Any, Any]:
        """The results of the same call, without what differs from run to run."""
        return alike(await do(self.adk)), alike(await do(self.ours))


@asynccontextmanager
async def twins(served: ServedApp, make: MakeAgent) -> AsyncGenerator[Twins]:
    """Both servers, with one session each."""
    transport = httpx.ASGITransport(adk_app(served.agent, make), raise_app_exceptions=False)
    async with (
        live(served, worker_of(served, make)) as server,
        httpx.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=PATIENCE
        ) as adk,
        server.client(root="/adk/") as ours,
    ):
        pair = Twins(Caller(adk, served.agent), Caller(ours, served.agent), server)
        for caller in (pair.adk, pair.ours):
            assert (await caller.create()).status_code == 200
        yield pair


def alike(value: Any) -> Any:
    """JSON or a response without ids and times; ids that ADK makes are numbered as they come."""
    if isinstance(value, httpx.Response):
        return value.status_code, alike(value.json())
    return _numbered(_without(value))


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        left_out = CHANGING | {"id"} if "author" in fields else CHANGING
        return {key: _without(inner) for key, inner in fields.items() if key not in left_out}
    items = cast("list[Any]", value)
    return [_without(inner) for inner in items] if isinstance(value, list) else value


def _numbered(value: Any) -> Any:
    numbers: dict[str, str] = {}
    text = json.dumps(value, sort_keys=True)
    return json.loads(
        _CALL_ID.sub(lambda found: numbers.setdefault(found[0], f"call-{len(numbers)}"), text)
    )


def partial_text(frames: list[dict[str, Any]]) -> str:
    """The text of the partial events."""
    return "".join(
        part.get("text", "")
        for frame in frames
        if frame.get("partial")
        for part in frame["content"]["parts"]
    )


def finals(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [frame for frame in frames if not frame.get("partial")]
