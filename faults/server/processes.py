"""`lango serve` and `lango worker` as processes on loopback that a test can kill."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
from google.adk.agents import LlmAgent

from faults.turns.agents import PATIENCE, Effects, agent_of
from faults.turns.workspace import Workspace
from lango.store.keys import KeyStore
from lango.store.sessions.store import SqlSessionStore
from tests.cli.processes import Running

READER: Final = "reader"
_ROOT: Final = Path(__file__).resolve().parents[2]
_DELAY: Final = "LANGO_FAULTS_DELAY"
_ADDRESS: Final = re.compile(r"http://127\.0\.0\.1:(\d+)")


def make() -> LlmAgent:
    """The agent of a project; the process runs in the project's folder."""
    return agent_of(Effects(Path("effects").resolve()), float(os.environ[_DELAY]))


@dataclass(frozen=True)
class Project:
    """A workspace with a `lango.yaml`, and a key for its servers."""

    workspace: Workspace
    key: str
    delay: float

    def command(self, *arguments: str) -> Running:
        """Run a `lango` command in its folder."""
        environment = {"PYTHONPATH": str(_ROOT), _DELAY: str(self.delay)}
        return Running(self.workspace.folder, *arguments, environment=environment)

    async def worker(self) -> Running:
        """Start a `lango worker`, and wait until it is ready."""
        made = self.command("worker")
        await asyncio.to_thread(made.wait_for, "Running turns")
        return made


async def project(
    workspace: Workspace, tenant: str, *, delay: float, more_settings: str = ""
) -> Project:
    """Write a project into the folder of a workspace."""
    settings = f"apps: {{{workspace.app}: '{__name__}:make'}}\nstore: {{url: '{workspace.url}'}}\n"
    (workspace.folder / "lango.yaml").write_text(settings + more_settings)
    async with SqlSessionStore(workspace.url) as store:
        made = await KeyStore(store.database).create(tenant, user=READER)
    return Project(workspace, made.text, delay)


@dataclass
class Server:
    """One `lango serve`; after a kill it can be started again under the same address."""

    project: Project
    with_worker: bool
    port: int = 0
    up: asyncio.Event = field(default_factory=asyncio.Event)
    running: Running | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> httpx.AsyncClient:
        """An HTTP client that authenticates with the project's key."""
        headers = {"Authorization": f"Bearer {self.project.key}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=PATIENCE)

    async def start(self) -> None:
        """Start it, and wait until it serves."""
        worker = "--worker" if self.with_worker else "--no-worker"
        self.running = self.project.command("serve", "--port", str(self.port), worker)
        await asyncio.to_thread(self.running.wait_for, "Serving")
        found = _ADDRESS.search(self.running.err)
        assert found, self.running.err
        self.port = int(found[1])
        self.up.set()

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.up.clear()
        if self.running is not None:
            await asyncio.to_thread(self.running.kill)


@asynccontextmanager
async def servers(
    served: Project, count: int, *, with_worker: bool
) -> AsyncGenerator[list[Server]]:
    """Start `count` servers, and wait until they serve; all are killed at the end."""
    async with AsyncExitStack() as ending:
        made = [Server(served, with_worker) for _ in range(count)]
        for each in made:
            ending.push_async_callback(each.kill)
        await asyncio.gather(*(each.start() for each in made))
        yield made
