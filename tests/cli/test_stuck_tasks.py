"""Commands whose agent leaves a task that ignores its cancellation: they end all the same."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import httpx
import pytest

from tests.cli.processes import PATIENCE, Running, lango

_PROJECT = """\
import asyncio

import lango
from lango.adk.apps.build import llm_agent
from lango.providers.scripted import ScriptedProvider
from lango.turns import event_loop

event_loop._GRACE = 0.1
tasks = []


async def ignore_cancellation():
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass


@lango.tool
async def cling() -> str:
    "Start a task that does not end."
    tasks.append(asyncio.create_task(ignore_cancellation()))
    return "started"


def make():
    return llm_agent("shop", lango.ModelAdapter(ScriptedProvider(), "demo"), tools=[cling])
"""
CLING = "call cling {}"
IGNORED = "tasks that ignore their cancellation: 1"


@pytest.fixture
def project(tmp_path: Path, sqlite_url: str, tenant: str) -> Path:
    (tmp_path / "stuck.py").write_text(_PROJECT)
    settings = f"apps: {{shop: stuck:make}}\nstore: {{url: '{sqlite_url}', tenant: {tenant}}}\n"
    (tmp_path / "lango.yaml").write_text(settings)
    return tmp_path


def start_task(address: str) -> None:
    """Run one turn that starts the task."""
    with httpx.Client(base_url=address, timeout=PATIENCE) as client:
        session = client.post("/apps/shop/users/user/sessions", json={}).json()["id"]
        body = {
            "app_name": "shop",
            "user_id": "user",
            "session_id": session,
            "new_message": {"role": "user", "parts": [{"text": CLING}]},
        }
        assert "started" in client.post("/run", json=body).raise_for_status().text


def test_adks_web_ui_ends(project: Path) -> None:
    with Running(project, "dev", "--port", "0", environment={"HOME": str(project)}) as dev:
        dev.wait_for("/dev-ui/")
        address = re.search(r"http://127\.0\.0\.1:\d+", dev.err)
        assert address
        start_task(address[0])
        dev.process.send_signal(signal.SIGTERM)
        assert dev.process.wait(30) == 0
        assert "Stopped." in dev.err
        assert IGNORED in dev.err
        assert "Traceback" not in dev.err


def test_a_conversation_at_the_terminal_ends(project: Path) -> None:
    ended = lango(project, "run", CLING)
    assert ended.returncode == 0, ended.stderr
    assert "started" in ended.stdout
    assert "Traceback" not in ended.stderr
    assert "was destroyed" not in ended.stderr
