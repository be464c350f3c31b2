"""`lango run`, `lango init` and `lango doctor`, as a shell sees them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from lango.core.turns.states import NewTurn
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.submit import SqlTurnStore
from tests.cli.processes import lango
from tests.cli.running import run
from tests.cli.terminal import Terminal


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `lango init` writes, and being in it."""
    folder = tmp_path / "new"
    made = run("init", str(folder))
    assert made.code == 0, made.err
    assert "lango run" in made.out
    monkeypatch.chdir(folder)
    return folder


def test_a_new_project_answers_and_calls_its_tool(project: Path) -> None:
    hello = lango(project, "run", "hello")
    assert (hello.returncode, hello.stdout) == (0, "You said: hello\n"), hello.stderr
    rolled = lango(project, "run", "--json", "roll dice with 20 sides")
    events = [json.loads(line) for line in rolled.stdout.splitlines()]
    kinds = [event["type"] for event in events]
    assert kinds[0] == "started"
    assert kinds[-1] == "completed"
    started = next(event for event in events if event["type"] == "tool.started")
    assert (started["name"], started["arguments"]) == ("roll_dice", {"sides": 20})
    finished = next(event for event in events if event["type"] == "tool.finished")
    assert 1 <= finished["result"]["result"] <= 20
    text = "".join(event["text"] for event in events if event["type"] == "message.delta")
    assert [e["text"] for e in events if e["type"] == "message.completed"] == [text]


def test_a_new_project_passes_its_examination(project: Path) -> None:
    report = lango(project, "doctor")
    assert report.returncode == 0, report.stdout + report.stderr
    assert "model scripted:demo" in report.stdout
    assert "All of it works." in report.stdout


def test_a_pending_result_is_named(project: Path) -> None:
    (project / "mine.py").write_text(
        "from google.adk.agents import Agent\n"
        "from google.adk.tools.long_running_tool import LongRunningFunctionTool\n"
        "from lango import ModelAdapter\n"
        "def errand(name: str) -> dict[str, str]:\n"
        "    'Send a courier.'\n"
        "    return {'status': 'pending'}\n"
        "tools = [LongRunningFunctionTool(errand)]\n"
        "agent = Agent(name='clerk', model=ModelAdapter('scripted:demo'), tools=tools)\n"
    )
    (project / "lango.yaml").write_text(
        "apps: {clerk: mine:agent}\nstore: {url: 'sqlite:///a.db'}\n"
    )
    ran = lango(project, "run", 'call errand {"name": "a"}')
    assert (ran.returncode, ran.stdout) == (3, 'I asked: errand gave {"status":"pending"}.\n')
    assert "`lango turns deliver` delivers it" in ran.stderr
    assert "To answer: " not in ran.stderr


def test_doctor_says_which_apps_can_be_resumed(project: Path) -> None:
    (project / "mine.py").write_text(
        "from google.adk.agents import Agent, BaseAgent\n"
        "class Own(BaseAgent): pass\n"
        "own = Own(name='own')\n"
        "plain = Agent(name='plain')\n"
    )
    (project / "lango.yaml").write_text("apps: {plain: mine:plain, own: mine:own}\n")
    report = lango(project, "doctor", "--no-models")
    rows = [line.split(None, 4) for line in report.stdout.splitlines() if " turns of " in line]
    assert [(row[0], row[3], row[4].partition(":")[0]) for row in rows] == [
        *(("ok", "plain", "resumable"), ("??", "own", "not resumable"))
    ]
    assert "overrides how it runs" in report.stdout
    (project / "lango.yaml").write_text("apps: {own: mine:own}\ndurability: strict\n")
    report = lango(project, "doctor", "--no-models")
    assert report.returncode == 1
    assert "!!  app own" in report.stdout


def test_doctor_names_turns_that_no_worker_will_run(project: Path) -> None:
    async def submit() -> None:
        async with SqlSessionStore(f"sqlite:///{project / 'lango.db'}") as store:
            for app in ("assistant", "renamed"):
                key = SessionKey("acme", app, "ann", "s")
                await store.create(key)
                for _ in range(2):
                    await SqlTurnStore(store.database).submit(key, NewTurn({"text": "hi"}))

    asyncio.run(submit())
    report = lango(project, "doctor", "--no-models")
    assert report.returncode == 1, report.stdout + report.stderr
    assert "!!  turns of renamed" in report.stdout
    assert "2 wait, and no worker has that app" in report.stdout
    assert report.stdout.count("2 wait") == 1


def test_init_overwrites_nothing(project: Path) -> None:
    (project / "tools.py").write_text("mine")
    again = run("init", str(project))
    assert again.code == 1
    assert "nothing is overwritten" in again.err
    assert (project / "tools.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("run", "missing", "hi"), "There is no app missing; lango.yaml has assistant."),
        (("run", "no.such:thing", "hi"), "there is no module no"),
        (("run", "json:dumps", "hi"), "calling it fails"),
        (("run", "json:JSONDecoder", "hi"), "it must be an ADK agent, App or Workflow"),
        (("run", "json:root_agnt", "hi"), "json has no root_agnt"),
    ],
)
def test_what_cannot_be_run_is_said(
    project: Path, arguments: tuple[str, ...], expected: str
) -> None:
    del project
    ran = run(*arguments)
    assert ran.code == 1
    assert expected in ran.err
    assert "Traceback" not in ran.err


def test_without_an_app_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run("run", "hello")
    assert ran.code == 1
    assert "lango init" in ran.err


def test_too_many_words(project: Path) -> None:
    del project
    ran = run("run", "one", "two", "three")
    assert ran.code == 2
    assert "in quotes" in ran.err


def test_a_model_that_fails_is_said_in_a_line(project: Path) -> None:
    settings = project / "lango.yaml"
    settings.write_text(settings.read_text().replace("scripted:demo", "ollama:none"))
    ran = lango(project, "run", "hello")
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert "ollama" in ran.stderr
    report = lango(project, "doctor")
    assert report.returncode == 1
    assert "!!  model ollama:none" in report.stdout


def test_adk_code_is_taken_as_it_is(project: Path) -> None:
    (project / "mine.py").write_text(
        "from google.adk.agents import Agent\n"
        "import lango\n"
        "root_agent = Agent(name='mine', model=lango.ModelAdapter('scripted:demo'))\n"
    )
    ran = lango(project, "run", "mine:root_agent", "hello")
    assert (ran.returncode, ran.stdout) == (0, "You said: hello\n"), ran.stderr


def test_at_a_terminal_it_says_how_to_continue(project: Path) -> None:
    with Terminal(project) as terminal:
        terminal.lango("run", "hello")
        screen = terminal.wait_for("To continue: lango chat")
        assert "--session" in screen


def test_a_toolset_of_adk_that_cannot_be_loaded_is_named(project: Path) -> None:
    (project / "mine.py").write_text(
        "from google.adk.agents import Agent\n"
        "from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams\n"
        "from mcp import StdioServerParameters\n"
        "import lango\n"
        "server = StdioServerParameters(command='no-such-program')\n"
        "tools = [McpToolset(connection_params=StdioConnectionParams(server_params=server))]\n"
        "model = lango.ModelAdapter('scripted:demo')\n"
        "root_agent = Agent(name='mine', model=model, tools=tools)\n"
    )
    ran = lango(project, "run", "mine:root_agent", "hello")
    assert (ran.returncode, ran.stdout) == (0, "You said: hello\n"), ran.stderr
    assert ran.stderr.count("will run without the tools from toolset McpToolset") == 1
    assert "`lango doctor` tries it again." in ran.stderr
    assert "Traceback" not in ran.stderr
