"""A project with a server and workers of their own processes, whose traces go to a receiver."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.cli.processes import PATIENCE, Running

CLIENT_TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT_SPAN = "b7ad6b7169203331"
TRACEPARENT = f"00-{CLIENT_TRACE}-{CLIENT_SPAN}-01"
ENDS = ("completed", "failed", "cancelled")
_SHOP = """\
import asyncio
import os
import signal
from pathlib import Path

import lango
from lango.adk.apps.build import llm_agent
from lango.core import failpoints
from lango.providers.policy.retry import Policy
from lango.providers.scripted import Fault, Reply, ScriptedProvider
from lango.telemetry.tracing.current import current_trace_id, tracer

DIE_AT, DIE_TIMES = os.environ.get("DIE_AT", ""), int(os.environ.get("DIE_TIMES", "1"))
passed = []


def die(name):
    passed.append(name)
    if passed.count(DIE_AT) == DIE_TIMES:
        tracer().flush()  # what a worker that lives for another second would have sent
        os.kill(os.getpid(), signal.SIGKILL)


if DIE_AT:
    failpoints.armed = die


@lango.tool
async def look(item: str) -> str:
    "Look something up."
    return f"result-{item} in {current_trace_id()}"


@lango.tool
async def fail(item: str) -> str:
    "Fail with what it got."
    raise ValueError(f"no {item}")


@lango.tool(idempotent=True)
async def hold() -> str:
    "Wait for a file."
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "released"


def redact(name, text):
    if name == "gen_ai.tool.call.result":
        return None
    return text.replace("canary", "[hidden]")


def broken(name, text):
    raise RuntimeError("the hook fails")


def make():
    model = lango.ModelAdapter(ScriptedProvider(), "demo")
    return llm_agent("shop", model, tools=[look, fail, hold])


def stubborn():
    overloaded = lango.ModelUnavailableError("canary in an error")
    refused = lango.BadRequestError("canary of the provider")
    model = ScriptedProvider([Reply(fault=Fault(error=error)) for error in (overloaded, refused)])
    policy = Policy(first_wait=0.01)
    return llm_agent("stubborn", lango.ModelAdapter(model, "m", policy=policy))
"""


@dataclass
class Project:
    """The project's folder, and how its processes run."""

    folder: Path
    store: str
    receiver: str
    app: str
    engine: str = "database"
    drain: float = 30.0

    def write(self, agent: str = "make", **telemetry: Any) -> None:
        """Write the settings and the code."""
        settings = {
            "apps": {self.app: f"traced_shop:{agent}"},
            "store": {"url": self.store},
            "engine": self.engine,
            "worker": {"drain": self.drain},
            "telemetry": {"endpoint": self.receiver, **telemetry},
        }
        (self.folder / "lango.yaml").write_text(yaml.safe_dump(settings))
        (self.folder / "traced_shop.py").write_text(_SHOP)

    def worker(self, environment: Mapping[str, str] | None = None) -> Running:
        """A worker in a process of its own."""
        return Running(self.folder, "worker", environment=environment)

    @contextmanager
    def server(self, *options: str) -> Generator[httpx.Client]:
        """A server in a process of its own, which asks for no key, and a client of it."""
        arguments = ("serve", "--port", "0", "--insecure-no-auth", *options)
        with Running(self.folder, *arguments) as server:
            server.wait_for("Serving")
            address = re.search(r"http://127\.0\.0\.1:\d+", server.err)
            assert address
            with httpx.Client(base_url=address[0], timeout=PATIENCE) as client:
                yield client
            server.process.terminate()
            assert server.end() == 0, server.err

    def submit(self, client: httpx.Client, message: str, **headers: str) -> dict[str, Any]:
        """Submit a message in a new session; the turn."""
        made = client.post("/v1/sessions", json={"app": self.app})
        assert made.status_code < 300, made.text
        path = f"/v1/sessions/{made.json()['id']}/turns"
        accepted = client.post(path, json={"message": message}, headers=headers)
        assert accepted.status_code == 202, accepted.text
        return accepted.json()


def ended(client: httpx.Client, turn: str) -> dict[str, Any]:
    """The turn, once it has ended."""
    with client.stream("GET", f"/v1/turns/{turn}/events") as events:
        for _ in events.iter_lines():
            pass
    found = client.get(f"/v1/turns/{turn}").json()
    assert found["state"] in ENDS, found
    return found
