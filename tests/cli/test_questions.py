"""What a turn asks a person: printed by `lango run`, answered in `lango chat`."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.cli.terminal import Terminal

ASK = '''\
from google.adk import Event, Workflow
from google.adk.events import RequestInput
from google.adk.tools import LongRunningFunctionTool

import lango
from lango.adk.apps.build import llm_agent


def start(node_input: str):
    yield RequestInput(message="How many copies?")


def finish(node_input):
    yield Event(message=f"You ordered {node_input!r}.")


@lango.tool(require_confirmation=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded order {order}"


def order_print(copies: int) -> dict[str, str]:
    """Order a print run."""
    return {"status": "pending"}


root_agent = Workflow(name="ask", edges=[("START", start, finish)])
shop = llm_agent("shop", lango.ModelAdapter("scripted:demo"), tools=[refund])
press = llm_agent(
    "press", lango.ModelAdapter("scripted:demo"), tools=[LongRunningFunctionTool(order_print)]
)
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of these agents, and being in it."""
    monkeypatch.delitem(sys.modules, "ask", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ask.py").write_text(ASK)
    (tmp_path / "other.yaml").write_text("store: {tenant: acme}\n")
    return tmp_path


def test_run_prints_the_question_and_how_to_answer_it() -> None:
    options = ("--url", "sqlite:///my own.db", "--config", "other.yaml", "--session", "s 1")
    output = run("run", *options, "ask:root_agent", "hi")
    assert output.code == 3
    assert "How many copies?" in output.err
    again = (
        "lango chat ask:root_agent --session 's 1' --url 'sqlite:///my own.db' --config other.yaml"
    )
    assert again in output.err
    assert "refund wants to run with" not in output.err


def test_run_prints_the_call_that_waits() -> None:
    output = run("run", "ask:shop", "refund 5")
    assert output.code == 3
    assert "refund wants to run with" in output.err
    assert '"order": 5' in output.err


def test_run_says_where_the_result_of_a_long_running_call_goes() -> None:
    output = run("run", "ask:press", "order_print 5")
    assert output.code == 3
    assert "waits for the result of a long-running call: call_1" in output.err
    assert "`lango turns deliver` delivers it" in output.err
    assert "lango chat" not in output.err, "which cannot take a result"


def test_a_hint_does_not_print_a_password(folder: Path) -> None:
    from lango.cli.conversation import command_again

    store_options = ("postgresql://ann:hunter2@db/x", None, folder / "l.yaml")
    hint = command_again("shop", "ann", "s1", store_options)
    assert "hunter2" not in hint
    assert hint.startswith("lango chat shop --session s1 --user ann --url 'postgresql://ann:***")


def test_hints_have_the_options_of_the_store() -> None:
    options = ("--url", "sqlite:///my own.db", "--config", "other.yaml")
    given = "--url 'sqlite:///my own.db' --config other.yaml"
    output = run("run", *options, "--session", "s1", "ask:press", "order_print 5")
    assert f"Session s1 is new. `lango sessions list {given}` shows the others." in output.err
    assert f"`lango turns deliver {given}` delivers it" in output.err
    assert f"`lango turns list --status input_required {given}` has the turn's id" in output.err
    unknown = f"ses_{'0' * 32}"
    missing = run("run", *options, "--session", unknown, "ask:press", "hi")
    assert f"Session {unknown} not found. Run `lango sessions list {given}`." in missing.err
    assert f"Run `lango sessions list {given}`, or" in run("sessions", "show", "x", *options).err
    for command in ("show", "cancel", "retry"):
        assert f"Run `lango turns list {given}`, or" in run("turns", command, "x", *options).err
    assert f"`lango keys create --user NAME {given}` makes" in run("keys", "list", *options).out


def test_a_session_that_is_new_is_said() -> None:
    first = run("run", "--session", "s1", "ask:shop", "hello")
    assert "Session s1 is new. `lango sessions list` shows the others." in first.err
    assert "is new" not in run("run", "--session", "s1", "ask:shop", "hello").err
    assert "is new" not in run("run", "ask:shop", "hello").err
    other = run("run", "--json", "--session", "s2", "ask:shop", "hello")
    assert "Session s2 is new" in other.err
    assert [json.loads(line)["type"] for line in other.out.splitlines()][-1] == "completed"


def test_a_session_is_continued_by_the_id_that_lists_show() -> None:
    run("run", "--session", "s3", "ask:shop", "hello")
    [session] = json.loads(run("sessions", "list", "--json").out)["sessions"]
    again = run("run", "--session", session["id"], "ask:shop", "hello")
    assert (again.code, "is new" in again.err) == (0, False), again.err
    assert len(json.loads(run("sessions", "list", "--json").out)["sessions"]) == 1
    other = run("run", "--session", session["id"], "--user", "bob", "ask:shop", "hello")
    assert other.code == 1
    assert "belongs to the user user in the app" in other.err
    typo = session["id"][:-4] + "0000"
    assert f"Session {typo} not found." in run("run", "-s", typo, "ask:shop", "hello").err


def test_an_input_is_given_in_chat(folder: Path) -> None:
    with Terminal(folder) as terminal:
        terminal.lango("chat", "ask:root_agent")
        terminal.wait_for("you> ")
        terminal.type("hello")
        terminal.wait_for("How many copies?")
        terminal.wait_for("answer> ")
        terminal.press("C-d")
        terminal.wait_for("you> ", times=2)
        terminal.press("C-d")
        screen = terminal.wait_for("To continue: ")
        [again] = [line for line in screen.splitlines() if line.startswith("To continue: ")]
        terminal.lango(*shlex.split(again.removeprefix("To continue: "))[1:])
        terminal.wait_for("answer> ", times=2)
        terminal.type("three")
        terminal.wait_for("You ordered 'three'.")
        terminal.press("C-d")
