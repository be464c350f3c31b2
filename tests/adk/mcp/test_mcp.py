"""Real MCP servers under a real Runner: used, killed, hung, and gone without a trace."""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.base_toolset import BaseToolset

from faults.database.own_cluster import free_port
from lango.adk.mcp.settings import McpServer, mcp_toolset
from lango.adk.sessions.service import SessionServiceAdapter
from lango.errors import InvalidToolError, MissingExtraError
from tests.adk.mcp.mcp_servers import (
    ROGUE,
    HeldResources,
    McpConversation,
    OnHttp,
    OnStdio,
    call,
    command,
    confirmation,
    servers,
    text_of,
)

RunningServer = OnStdio | OnHttp
TURNS = 100
REJECTED = "This tool call is rejected."


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Where servers tell what they did."""
    return tmp_path / "notes"


@pytest.fixture
def calls(notes: Path) -> Path:
    """The same as a FIFO: reading it waits for a server that has something to tell."""
    os.mkfifo(notes)
    return notes


@pytest.fixture(params=[OnStdio, OnHttp])
async def running(request: pytest.FixtureRequest, notes: Path) -> AsyncGenerator[RunningServer]:
    """Either transport in turn."""
    running: RunningServer = await asyncio.to_thread(request.param, notes)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[OnHttp]:
    """A server for the tests that do it no harm."""
    running = OnHttp(tmp_path_factory.mktemp("shared") / "notes")
    yield running
    running.stop()


@pytest.fixture
async def service(sqlite_url: str) -> AsyncGenerator[SessionServiceAdapter]:
    async with SessionServiceAdapter(sqlite_url) as service:
        yield service


@pytest.fixture
async def open_toolsets(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[list[BaseToolset]]:
    """Closed at the end, without much patience; no server and no task may be left then."""
    for grace in ("PROCESS_TERMINATION_TIMEOUT", "FORCE_KILL_TIMEOUT"):
        monkeypatch.setattr(f"mcp.client.stdio.{grace}", 0.3)
    before = len(asyncio.all_tasks())
    toolsets: list[BaseToolset] = []
    yield toolsets
    for toolset in toolsets:
        await toolset.close()
    assert servers() == []
    assert len(asyncio.all_tasks()) <= before


class Bench:
    """What most tests need: servers' tools, talked to on our store."""

    def __init__(self, service: SessionServiceAdapter, opened: list[BaseToolset]) -> None:
        self._service, self._opened = service, opened

    def talk(self, server: McpServer, *script: Any, **more: Any) -> McpConversation:
        """An agent with this server's tools."""
        toolset = mcp_toolset(server)
        self._opened.append(toolset)
        return McpConversation(self._service, toolset, *script, **more)

    def on_stdio(self, kind: str, *script: Any, notes: Path, **options: Any) -> McpConversation:
        """An agent with a server of this kind."""
        options["env"] = {"NOTES": str(notes)}
        return self.talk(McpServer("calc", command(kind), **options), *script)


@pytest.fixture
def bench(service: SessionServiceAdapter, open_toolsets: list[BaseToolset]) -> Bench:
    return Bench(service, open_toolsets)


async def test_killed_in_the_middle_of_a_call(
    running: RunningServer, bench: Bench, calls: Path
) -> None:
    """The model gets the failure as a result, and the next call of the same turn works."""
    restarted = asyncio.Event()

    async def wait() -> str:
        """Wait for a while."""
        await restarted.wait()
        return "waited"

    script = [call("add", a=1, b=2), call("hang"), call("wait"), call("add", a=3, b=4), "done"]
    talk = bench.talk(await running.server(), *script, tools=[wait])
    turn = asyncio.create_task(talk.say("go"))
    await asyncio.to_thread(calls.read_text)
    await running.kill()
    await running.restart()
    restarted.set()
    assert text_of(await turn) == "done"
    first, failed, waited, last = talk.told
    assert first["structuredContent"] == {"result": 3}
    assert "broke off during the call. It may have been done or not" in failed["error"]
    assert failed["error_id"].startswith("err_")
    assert waited == {"result": "waited"}
    assert last["structuredContent"] == {"result": 7}


async def test_a_server_that_is_down_for_a_while(bench: Bench, notes: Path) -> None:
    running = await asyncio.to_thread(OnHttp, notes)
    try:
        talk = bench.talk(await running.server(), "hello", call("add", a=1, b=2), "a pity")
        await talk.say("hello")
        await running.kill()
        assert text_of(await talk.say("go")) == "a pity"
        assert "cannot be reached" in talk.told[-1]["error"]
        assert "cannot be reached at the moment" in talk.instruction
        await running.restart()
        await talk.say('call add {"a": 5, "b": 6}')
        assert talk.told[-1]["structuredContent"] == {"result": 11}
        assert "cannot be reached" not in talk.instruction
    finally:
        running.stop()


async def test_nothing_is_left_after_a_hundred_turns(running: RunningServer) -> None:
    toolset = mcp_toolset(await running.server())
    talk = McpConversation(InMemorySessionService(), toolset)

    async def turn(number: int) -> None:
        await talk.say(f'call add {{"a": {number}, "b": 1}}', f"session {number}")
        assert talk.told[-1]["structuredContent"] == {"result": number + 1}

    await McpConversation(InMemorySessionService(), mcp_toolset(McpServer("none", ("none",)))).say(
        "hello"
    )
    before = HeldResources.now()
    await turn(0)
    connected = HeldResources.now()
    for number in range(TURNS):
        if number == TURNS // 2:
            await running.kill()
            await running.restart()
        await turn(number)
    assert HeldResources.now().is_within(connected)
    await toolset.close()
    assert HeldResources.now().is_within(before)


async def test_many_turns_at_once_share_one_server(bench: Bench, notes: Path) -> None:
    talk = bench.on_stdio("plain", notes=notes)
    words = [f'call add {{"a": {n}, "b": 0}}' for n in range(10)]
    answers = await asyncio.gather(*(talk.say(text, text) for text in words))
    for number, events in enumerate(answers):
        assert f'"structuredContent":{{"result":{number}}}' in text_of(events)
    assert len(servers()) == 1


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_a_call_that_hangs_costs_its_timeout(
    bench: Bench, way: str, notes: Path, shared: OnHttp
) -> None:
    running = OnStdio(notes) if way == "stdio" else shared
    talk = bench.talk(await running.server(timeout=1.5))
    await talk.listed()
    began = time.monotonic()
    await talk.say("call hang {}")
    assert 1.5 <= time.monotonic() - began < 15
    assert "hang gave no answer within 1.5 seconds" in talk.told[-1]["error"]
    await talk.say('call add {"a": 1, "b": 1}')
    assert talk.told[-1]["structuredContent"] == {"result": 2}


async def test_a_slow_server_is_ready_for_a_later_turn(bench: Bench, notes: Path) -> None:
    talk = bench.on_stdio("slow", notes=notes, timeout=1.5)
    await talk.say("hello")
    assert talk.offered == []
    [starting] = servers()
    await talk.listed()
    assert servers() == [starting], "it was not started again"


async def test_a_server_that_froze_is_replaced(bench: Bench, notes: Path) -> None:
    """The model gets an error, its tools stay, and a later turn has a new server."""
    talk = bench.on_stdio("plain", notes=notes, timeout=1.5)
    await talk.listed()
    [frozen] = servers()
    os.kill(frozen, signal.SIGSTOP)
    await talk.say("hello")
    assert "cannot be reached at the moment" in talk.instruction
    assert "add" in talk.offered
    for _ in range(20):
        if "cannot be reached" in talk.instruction:
            await talk.say("hello")
    await talk.say('call add {"a": 1, "b": 1}')
    assert talk.told[-1]["structuredContent"] == {"result": 2}


@pytest.fixture
def silent_url() -> Any:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"


@pytest.mark.parametrize("how", ["no program", "no server", "silent", "frozen", "wild", "dies"])
async def test_a_server_that_cannot_be_reached_costs_no_turn(
    bench: Bench, how: str, silent_url: str, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = {"NOTES": str(notes)}
    ways = {
        "no program": McpServer("calc", ("no-such-program",)),
        "no server": McpServer("calc", url=f"http://127.0.0.1:{free_port()}/mcp"),
        "silent": McpServer("calc", url=silent_url, timeout=1.0),
        "frozen": McpServer("calc", command("frozen", ROGUE), env=env, timeout=1.0),
        "wild": McpServer("calc", command("wild", ROGUE), env=env),
        "dies": McpServer("calc", (sys.executable, "-c", "raise SystemExit('no licence')")),
    }
    talk = bench.talk(ways[how])
    began = time.monotonic()
    assert text_of(await talk.say("hello")) == "You said: hello"
    assert time.monotonic() - began < 15
    assert talk.offered == []
    assert "The tools of the MCP server 'calc' cannot be reached" in talk.instruction
    [lines] = [each.getMessage() for each in caplog.records if each.name == "lango.adk.mcp.toolset"]
    assert lines.startswith(
        "MCP server 'calc' cannot be reached, the turn runs without its tools: "
    )
    assert "Failed to create" not in lines


async def test_a_turn_cancelled_while_connecting(bench: Bench, calls: Path) -> None:
    """What was begun for it is ended with the toolset, as `open_toolsets` finds."""
    server = McpServer("calc", command("frozen", ROGUE), env={"NOTES": str(calls)})
    turn = asyncio.create_task(bench.talk(server).say("hello"))
    await asyncio.to_thread(calls.read_text)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert len(servers()) == 1


async def test_a_program_that_will_not_end_is_killed(service: SessionServiceAdapter) -> None:
    toolset = mcp_toolset(McpServer("calc", command("stubborn")))
    await McpConversation(service, toolset).say("hello")
    assert len(servers()) == 1
    await toolset.close()
    assert servers() == []


async def test_a_server_without_tools(bench: Bench, notes: Path) -> None:
    talk = bench.on_stdio("empty", notes=notes)
    assert text_of(await talk.say("hello")) == "You said: hello"
    assert talk.offered == []
    assert "cannot be reached" not in talk.instruction


async def test_tools_with_bad_schemas_are_left_out(
    bench: Bench, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    talk = bench.on_stdio("bad", notes=notes)
    await talk.say('call fine {"x": "y"}')
    assert talk.offered == ["fine"]
    assert talk.told[-1]["content"] == [{"type": "text", "text": "fine ran"}]
    await talk.say("again")
    for name in ("no_type", "odd_type"):
        assert caplog.text.count(f"The parameters of {name} are no JSON Schema") == 1


def removed(running: OnHttp, name: str) -> bool:
    return running.notes.exists() and f"removed {name}\n" in running.notes.read_text()


@pytest.mark.parametrize("confirmed", [True, False])
async def test_a_tool_that_requires_confirmation_asks_first(
    bench: Bench, shared: OnHttp, confirmed: bool
) -> None:
    name = f"what {confirmed} is said of"
    server = await shared.server(require_confirmation=("remove",))
    talk = bench.talk(server, call("remove", name=name))
    question = await talk.say("go")
    assert not removed(shared, name)
    await talk.say(confirmation(question, confirmed=confirmed))
    assert removed(shared, name) is confirmed
    result = talk.told[-1]
    assert result["isError"] is False if confirmed else result["error"] == REJECTED
    await talk.say('call add {"a": 1, "b": 1}')
    assert talk.told[-1]["structuredContent"] == {"result": 2}, "add is not require_confirmation"


async def test_all_tools_of_a_server_can_require_confirmation(bench: Bench, shared: OnHttp) -> None:
    talk = bench.talk(await shared.server(require_confirmation=True))
    confirmation(await talk.say('call add {"a": 1, "b": 1}'), confirmed=True)


async def test_the_model_receives_the_errors_of_wrong_calls(bench: Bench, shared: OnHttp) -> None:
    script = [call("add", a="one", b=2), call("fail"), "done"]
    talk = bench.talk(await shared.server(), *script)
    await talk.say("go")
    wrong, failed = talk.told
    assert wrong["error"] == "Wrong argument a: must be integer. Correct the call and try again."
    assert failed["isError"] is True
    assert "the disk is full" in failed["content"][0]["text"]


async def test_only_the_named_tools_are_offered(
    bench: Bench, shared: OnHttp, caplog: pytest.LogCaptureFixture
) -> None:
    names: dict[str, Any] = {
        "tools": ("add", "subtract"),
        "require_confirmation": ("dd",),
        "prefix": "calc",
    }
    talk = bench.talk(await shared.server(**names))
    await talk.say('call calc_add {"a": 1, "b": 1}')
    assert talk.offered == ["calc_add"]
    assert talk.told[-1]["structuredContent"] == {"result": 2}
    assert (
        "has no tool 'subtract'; there are: add, dig, fail, hang, heard, remove, secrets."
        in caplog.text
    )
    assert "has no tool 'dd'" in caplog.text


async def test_no_tool_is_offered_where_none_is_named(bench: Bench, shared: OnHttp) -> None:
    talk = bench.talk(await shared.server(tools=()))
    await talk.say("hello")
    assert talk.offered == []


async def test_headers_are_sent(bench: Bench, shared: OnHttp) -> None:
    talk = bench.talk(await shared.server(headers={"X-Key": "sesame"}))
    await talk.say("call heard {}")
    assert talk.told[-1]["structuredContent"] == {"result": "sesame"}


async def test_a_program_gets_no_secrets_and_prints_to_the_log(
    bench: Bench,
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    caplog.set_level(logging.INFO, "lango")
    talk = bench.on_stdio("plain", notes=notes)
    await talk.say("call secrets {}")
    names = talk.told[-1]["structuredContent"]["result"].split()
    assert "NOTES" in names
    assert "OPENAI_API_KEY" not in names
    assert "MCP server 'calc': a plain server begins" in caplog.text
    assert "plain server" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"name": ""}, "needs a name"),
        ({}, "needs either a command"),
        ({"command": ("x",), "url": "http://x"}, "needs either a command"),
        ({"url": "ftp://x"}, "neither http:// nor https://"),
        ({"url": "http://x", "cwd": "/"}, "env and cwd are for"),
        ({"command": ("x",), "headers": {"a": "b"}}, "headers are for"),
        ({"url": "http://x", "timeout": 0}, "give seconds above 0"),
    ],
)
def test_a_server_that_cannot_be(options: dict[str, Any], problem: str) -> None:
    options.setdefault("name", "calc")
    with pytest.raises(InvalidToolError, match=problem):
        McpServer(**options)


def test_secrets_are_not_shown() -> None:
    server = McpServer("calc", url="http://x", headers={"Authorization": "Bearer sk-secret"})
    assert "sk-secret" not in repr(server)
    assert "sk-secret" not in repr(McpServer("calc", ("x",), env={"KEY": "sk-secret"}))


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "lango.adk.mcp.toolset", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtraError, match=r'pip install "lango-adk\[mcp\]"'):
        mcp_toolset(McpServer("calc", ("x",)))
