"""A server and workers in trouble, with a Prometheus that watches them, and the runbook's commands.

The rules are those of deploy/ with seconds for minutes; limits in seconds stay as they are.
"""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from faults.database.own_cluster import free_port
from tests.cli.processes import PATIENCE, Running, lango
from tests.docs.pages import DOCS
from tests.support.prometheus import Prometheus, hurried, prometheus, rules, until

RUNBOOK: Final = (DOCS / "how-to/runbook.md").read_text("utf-8")
ENTRIES: Final = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", RUNBOOK, re.MULTILINE))
_BLOCK: Final = re.compile(r"```(sh|sql)\n(.*?)```", re.DOTALL)
_EXAMPLES: Final = re.compile(r"turn_[0-9a-f]{32}|\b[0-9a-f]{16}\b")
_AGENT: Final = """\
import asyncio
import os
import time
from pathlib import Path

import lango
from lango.adk.apps.build import llm_agent
from lango.providers.scripted import ScriptedProvider


@lango.tool
async def hold() -> str:
    "Wait for a file."
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "released"


@lango.tool(idempotent=True)
async def crash() -> str:
    "Kill the process, until it is mended."
    if not Path("mended").exists():
        os._exit(9)
    return "alive"


@lango.tool
async def stutter() -> str:
    "Block the event loop again and again, until a file is there."
    while not Path("calm").exists():
        time.sleep(1.5)
        await asyncio.sleep(0.05)
    return "late"


@lango.tool
async def block() -> str:
    "Block the event loop for longer than the drill."
    time.sleep(600)
    return "late"


@lango.tool
async def cling() -> str:
    "Swallow every cancellation."
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass


@lango.tool
async def look_up() -> str:
    "Need a file that is not there."
    return Path("stock").read_text()


TOOLS = [hold, crash, stutter, block, cling, look_up]


def make():
    model = lango.ModelAdapter(ScriptedProvider(delay=0.02), "demo")
    return llm_agent("shop", model, tools=TOOLS)
"""


@dataclass
class Drill:
    """One operator's deployment: settings, processes, Prometheus and the runbook."""

    folder: Path
    url: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    base: str = ""
    server: Running | None = None
    auth: Mapping[str, str] = field(default_factory=dict[str, str])
    worker_ports: list[int] = field(default_factory=lambda: [free_port(), free_port()])

    def write(self, app: str = "shop:make", **settings: str) -> None:
        """Write `lango.yaml` and the agent's code."""
        defaults = {
            "apps": f"{{shop: {app}}}",
            "store": f"{{url: '{self.url}'}}",
            "server": "{port: 0}",
            "metrics": "{enabled: true, port: 0}",
            "worker": "{hang_after: 2}",
        }
        lines = [f"{name}: {value}" for name, value in (defaults | settings).items()]
        (self.folder / "lango.yaml").write_text("\n".join(lines))
        (self.folder / "shop.py").write_text(_AGENT)

    def worker(self, number: int = 0) -> Running:
        """A worker; one of the same number has the same address for Prometheus."""
        port = str(self.worker_ports[number])
        return Running(self.folder, "worker", "--probe-port", port, environment=self.environment)

    @contextmanager
    def served(self, *arguments: str) -> Generator[Prometheus]:
        """A server, and a Prometheus that scrapes it and the workers to come."""
        options = ("serve", "--no-worker", *(arguments or ("--insecure-no-auth",)))
        with ExitStack() as stack:
            server = Running(self.folder, *options, environment=self.environment)
            stack.enter_context(server)
            self.server = server
            server.wait_for("The console is at")
            address, metrics = re.findall(r"http://(127\.0\.0\.1:\d+)", server.err)[:2]
            self.base = f"http://{address}"
            targets = [metrics, *(f"127.0.0.1:{port}" for port in self.worker_ports)]
            watching = prometheus(self.folder, targets, hurried(rules()))
            watch = stack.enter_context(watching)
            until(lambda: bool(watch.ask("up == 1")))
            yield watch

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A request to the server."""
        return httpx.request(
            method, self.base + path, headers=dict(self.auth), timeout=PATIENCE, **options
        )

    def submit(self, message: str, count: int = 1) -> list[str]:
        """Submit the message to new sessions; the ids of the turns."""
        turns: list[str] = []
        for _ in range(count):
            session = self.ask("POST", "/v1/sessions", json={"app": "shop"}).json()["id"]
            body = {"message": message}
            answer = self.ask("POST", f"/v1/sessions/{session}/turns", json=body)
            turns.append(answer.raise_for_status().json()["id"])
        return turns

    def state(self, turn: str) -> str:
        """The state of a turn."""
        return self.ask("GET", f"/v1/turns/{turn}").json()["state"]

    def has_ended(self, turn: str, state: str = "completed") -> bool:
        """Whether the turn has this state."""
        return self.state(turn) == state

    def sql(self, entry: str, turn: str = "") -> list[list[dict[str, str]]]:
        """The rows of each SQL statement of an entry, as `psql` prints them."""
        found: list[list[dict[str, str]]] = []
        for statement in ";".join(_blocks(entry, "sql")).split(";"):
            if statement.strip():
                found.append(self.rows(_EXAMPLES.sub(turn, statement) if turn else statement))
        return found

    def rows(self, statement: str) -> list[dict[str, str]]:
        """The rows of a statement."""
        printed = _run(["psql", self.url, "--csv", "-c", statement])
        return list(csv.DictReader(printed.splitlines()))

    def run(self, entry: str, command: str, example: str = "") -> str:
        """Run a command of an entry, whose example of an id is replaced; what it printed."""
        [line] = [
            line.partition(" #")[0].strip()
            for line in "\n".join(_blocks(entry, "sh")).splitlines()
            if line.startswith(command)
        ]
        program, *words = shlex.split(_EXAMPLES.sub(example, line))
        if program != "lango":
            return _run([program, *words])
        done = lango(self.folder, *words, environment=self.environment)
        return done.stdout + done.stderr


def _blocks(entry: str, language: str) -> list[str]:
    return [text for kind, text in _BLOCK.findall(ENTRIES[entry]) if kind == language]


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
