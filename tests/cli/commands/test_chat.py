"""`lango chat` in a real terminal: streaming, a confirmation, Ctrl-C, going on with a session."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.cli.terminal import Terminal

SETTINGS = """\
apps:
  shop:
    load: shop:make
"""
SHOP = '''\
"""An agent whose model takes its time, with a tool that asks first."""

import lango
from lango.adk.apps.build import llm_agent
from lango.providers.scripted import ScriptedProvider


@lango.tool(require_confirmation=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded order {order}"


def make():
    model = lango.ModelAdapter(ScriptedProvider(delay=0.15), "demo")
    return llm_agent("shop", model, tools=[refund])
'''


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project with such an agent."""
    (tmp_path / "lango.yaml").write_text(SETTINGS)
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def test_a_conversation(shop: Path) -> None:
    with Terminal(shop) as terminal:
        terminal.lango("chat")
        terminal.wait_for("you> ")
        terminal.type("good morning")
        terminal.wait_for("You said: good morning")

        terminal.wait_for("you> ", times=2)
        terminal.type("refund 12")
        terminal.wait_for("Let it? [y/N]")
        assert '"order": 12' in terminal.screen()
        terminal.type("n")
        screen = terminal.wait_for("you> ", times=3)
        assert "refunded order" not in screen

        terminal.type("refund 13")
        terminal.wait_for("Let it? [y/N]", times=2)
        terminal.type("y")
        terminal.wait_for("refunded order 13")

        terminal.wait_for("you> ", times=4)
        terminal.type(" ".join(f"word{number}" for number in range(200)))  # half a minute to stop
        terminal.wait_for("You said: word0 word1 word2")
        terminal.press("C-c")
        screen = terminal.wait_for("stopped; the text so far is kept")
        assert "word199" not in screen.split("You said: word0", 1)[1]

        terminal.wait_for("you> ", times=5)
        terminal.press("C-d")
        screen = terminal.wait_for("To continue: ")
        session = re.findall(r"lango chat --session (\w+)", screen)[-1]

        terminal.lango("chat", "--session", session)
        terminal.wait_for("you> ", times=6)
        terminal.type("still there?")
        terminal.wait_for("You said: still there?")
        terminal.press("C-d")


def test_exit_ends_a_conversation_as_in_adk_run(shop: Path) -> None:
    with Terminal(shop) as terminal:
        terminal.lango("chat")
        terminal.wait_for("you> ")
        terminal.type("exit the building")
        terminal.wait_for("You said: exit the building")
        terminal.wait_for("you> ", times=2)
        terminal.type("exit")
        assert "You said: exit\n" not in terminal.wait_for("To continue: ")


def test_a_session_that_waits_asks_again(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    monkeypatch.delitem(sys.modules, "shop", raising=False)  # of another test's folder
    output = run("run", "--session", "s1", "refund 5")
    assert output.code == 3
    assert "lango chat --session s1" in output.err
    with Terminal(shop) as terminal:
        terminal.lango("chat", "--session", "s1")
        terminal.wait_for("session s1 · exit or Ctrl-D ends")
        terminal.wait_for("Let it? [y/N]")
        terminal.type("yes")
        terminal.wait_for("refunded order 5")
        terminal.press("C-d")


def test_from_an_empty_folder_without_a_key(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.lango("init", ".")
        terminal.wait_for("is ready. Try it:")
        terminal.lango("chat")
        terminal.wait_for("you> ")
        terminal.type("roll dice with 6 sides")
        terminal.wait_for("I asked: roll_dice gave")
        terminal.press("C-d")
