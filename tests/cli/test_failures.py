"""What a developer learns of an error in their own code, and what a client does not."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from lango.store.sessions.store import SqlSessionStore
from lango.turns.engine.database import LocalEngine
from lango.turns.service import Turns
from tests.cli.processes import Running, lango
from tests.cli.running import run

SETTINGS = """\
store: {url: "sqlite:///here.db"}
apps: {callback: "broken:callback", tool: "broken:tool", nokey: "broken:nokey"}
"""
BROKEN = '''\
"""Agents that fail in a callback, in a tool, and for lack of a key."""

from google.adk import Agent

import lango


def lookup(callback_context):
    raise KeyError("customer_id of hunter2hunter2")


def refund(order: int) -> str:
    """Refund an order."""
    return str(order / 0)


def agent(name, **more):
    return Agent(name=name, model=lango.ModelAdapter("scripted:demo"), **more)


callback = agent("callback", before_agent_callback=lookup)
tool = agent("tool", tools=[refund])
nokey = Agent(name="nokey", model="gemini-2.5-flash")
'''
PASSWORD = "hunter2hunter2"
WHERE = {"lookup": 9, "refund": 14}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with these agents."""
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    (tmp_path / "lango.yaml").write_text(SETTINGS)
    (tmp_path / "broken.py").write_text(BROKEN)
    return tmp_path


def newest() -> str:
    return json.loads(run("turns", "list", "--json").out)["turns"][0]["id"]


def test_an_error_in_a_callback_is_printed_and_kept(shop: Path) -> None:
    ran = run("run", "callback", "hi")
    assert ran.code == 1
    location = f"{shop}/broken.py:{WHERE['lookup']}, in lookup"
    cause = f"KeyError: 'customer_id of **********' ({location})"
    assert cause in ran.err
    turn = newest()
    shown = run("turns", "show", turn).out
    assert f"  error    {cause}" in shown.splitlines()
    assert shown.count(location) == 1
    output = json.loads(run("turns", "show", "--json", turn).out)
    message = "'customer_id of **********'"
    assert output["causes"][turn] == {"type": "KeyError", "message": message, "place": location}
    assert PASSWORD not in ran.err + shown + str(output)
    listed = run("turns", "list", "--json").out
    assert "customer_id" not in listed
    assert json.loads(listed)["turns"][0]["error"]["error_id"] == turn


def test_an_error_in_a_tool_is_printed_and_kept(shop: Path) -> None:
    ran = run("run", "tool", "refund 12")
    cause = f"ZeroDivisionError: division by zero ({shop}/broken.py:{WHERE['refund']}, in refund)"
    assert f"refund failed: {cause}" in ran.err
    shown = run("turns", "show", newest()).out
    assert re.search(rf"tool refund: {re.escape(cause)} \(err_\w+\)", shown)


@pytest.mark.usefixtures("shop")
def test_a_key_that_is_missing_is_printed() -> None:
    ran = run("run", "nokey", "hi")
    assert re.search(r"ValueError: No API key was provided\..* \(\S+\.py:\d+, in ", ran.err)


@pytest.mark.usefixtures("shop")
def test_scripts_get_the_cause_as_json() -> None:
    end = json.loads(run("run", "--json", "callback", "hi").out.splitlines()[-1])
    assert end["error"]["cause"]["type"] == "KeyError"
    assert end["error"]["error_id"] == newest()
    finished = [
        json.loads(line)
        for line in run("run", "--json", "tool", "refund 12").out.splitlines()
        if "tool.finished" in line
    ]
    assert [each["cause"]["type"] for each in finished] == ["ZeroDivisionError"]


def test_the_log_is_shown_wherever_it_is_asked_for(shop: Path) -> None:
    ran = lango(shop, "run", "-v", "callback", "hi")
    assert ran.returncode == 1
    assert "Traceback" in ran.stderr
    assert "INFO lango.turns.attempt: Turn turn_" in ran.stderr


@pytest.mark.parametrize(
    "arguments", ["-v config schema", "config -v schema", "config schema --verbose"]
)
def test_groups_take_it_too(arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[bool] = []
    monkeypatch.setattr("lango.cli.output.logs.log_all", lambda: requests.append(True))
    assert run(*arguments.split()).code == 0
    assert requests == [True]


async def test_a_worker_logs_each_turn(shop: Path) -> None:
    async with (
        SqlSessionStore(f"sqlite:///{shop / 'here.db'}") as store,
        LocalEngine(store.database) as engine,
    ):
        turns = Turns(store, engine, tenant="")
        with Running(shop, "worker", environment={}) as worker:
            worker.wait_for("Running")
            failed = await turns.submit("callback", "hi", session="s1")
            answered = await turns.submit("tool", "hello", session="s2")
            for turn in (failed, answered):
                await turns.wait(turn.id)
            worker.process.send_signal(signal.SIGTERM)
            assert worker.end() == 0
    lines = worker.err.splitlines()
    for turn, app, session, outcome in (
        (failed, "callback", "s1", r"failed after \d+\.\d s: KeyError: .*broken\.py:9, in lookup"),
        (answered, "tool", "s2", r"completed after \d+\.\d s"),
    ):
        result = f"Turn {turn.id} of {app}, session {session}"
        [started, ended] = [line for line in lines if result in line]
        assert started.endswith(f"{result}: started, attempt 1.")
        assert re.search(f"{result}: {outcome}", ended)
    assert "Traceback" in worker.err
