"""MCP servers that list names which other tools have: nothing is replaced, and it is said."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents.llm_agent import LlmAgent
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.mcp_tool import mcp_tool
from google.adk.tools.mcp_tool.mcp_session_manager import StdioConnectionParams
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
from mcp import StdioServerParameters

from lango.adk.apps.parts import mcp_problem
from lango.adk.mcp.settings import McpServer, mcp_toolset
from lango.adk.runner import AgentRunner
from lango.adk.tools.adapter import as_adk_tools
from lango.tools.function import tool
from lango.tools.names import RESERVED
from tests.adk.mcp.mcp_servers import McpConversation, call, command, confirmation
from tests.cli.running import run

paid: list[int] = []


@tool(require_confirmation=True)
def pay(amount: int) -> str:
    """Pay."""
    paid.append(amount)
    return f"paid {amount}"


@pytest.fixture
async def toolset() -> AsyncGenerator[Callable[..., BaseToolset]]:
    """Toolsets of servers of a kind, closed at the end."""
    made: list[BaseToolset] = []

    def make(name: str, kind: str, **options: Any) -> BaseToolset:
        made.append(mcp_toolset(McpServer(name, command(kind), **options)))
        return made[-1]

    yield make
    for one in made:
        await one.close()


Toolset = Callable[..., BaseToolset]


def talk(*script: Any, **tools: list[Any]) -> McpConversation:
    return McpConversation(InMemorySessionService(), None, *script, **tools)


async def test_an_own_tool_still_asks_before_it_runs(toolset: Toolset) -> None:
    """The server's tool of the same name would run without asking a person."""
    paid.clear()
    shop = talk(call("pay", amount=3), "done", tools=[pay, toolset("shop", "rival")])
    question = await shop.say("go")
    assert paid == []
    await shop.say(confirmation(question, confirmed=True))
    assert paid == [3]
    assert shop.told[-1] == {"result": "paid 3"}


@pytest.fixture
async def adk_toolset() -> AsyncGenerator[Callable[..., McpToolset]]:
    """ADK's own toolsets of servers of a kind, closed at the end."""
    made: list[McpToolset] = []

    def make(kind: str, **options: Any) -> McpToolset:
        program, *arguments = command(kind)
        parameters = StdioServerParameters(command=program, args=arguments)
        connection = StdioConnectionParams(server_params=parameters, timeout=60)
        made.append(McpToolset(connection_params=connection, **options))
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.mark.parametrize("is_last", [True, False])
async def test_adk_s_own_toolset_replaces_no_tool(
    adk_toolset: Callable[..., McpToolset], is_last: bool
) -> None:
    AgentRunner(LlmAgent(name="any"), InMemorySessionService())  # installs the filter
    paid.clear()
    rival = adk_toolset("rival", tool_filter=["pay", "search"])
    second = adk_toolset("search", tool_filter=["search"])
    tools = [pay, rival, second] if is_last else [rival, second, pay]
    shop = talk(call("pay", amount=3), "done", tools=tools)
    question = await shop.say("go")
    assert sorted(shop.offered) == ["pay", "search"]
    assert paid == []
    await shop.say(confirmation(question, confirmed=True))
    assert paid == [3]
    assert shop.told[-1] == {"result": "paid 3"}


async def test_a_prefix_makes_adk_s_tools_usable(adk_toolset: Callable[..., McpToolset]) -> None:
    rival = adk_toolset("rival", tool_filter=["pay"], tool_name_prefix="shop")
    agent = LlmAgent(name="root", tools=as_adk_tools([pay, rival]))
    assert await mcp_problem(agent, rival) == ""
    other = adk_toolset("rival", tool_filter=["pay"])
    agent = LlmAgent(name="root", tools=as_adk_tools([pay, other]))
    assert (await mcp_problem(agent, other)).startswith("lists 'pay': left out, because another")


async def test_what_is_offered_and_what_is_said_of_it(
    toolset: Toolset, caplog: pytest.LogCaptureFixture
) -> None:
    rivals = [toolset("shop", "rival"), toolset("web", "search")]
    shop = talk(call("shop_search"), call("web_search"), "done", tools=[*rivals, pay])
    await shop.say("go")
    assert sorted(shop.offered) == [
        *("disk_free", "go", "pay", "shop_2fa", "shop_pay", "shop_search", "web_search"),
    ]
    assert [warnings["content"][0]["text"] for warnings in shop.told] == [
        "search ran",
        "search ran",
    ]
    for text in (
        "MCP server 'shop' lists 'pay'",
        "MCP server 'shop' lists 'search'",
        "MCP server 'web' lists 'search'",
        "MCP server 'shop' lists 'transfer_to_agent'",
        "MCP server 'shop' lists 'a b'",
        "MCP server 'shop' lists '../../etc'",
        "MCP server 'shop' lists ''",
        f"MCP server 'shop' lists '{'x' * 80}'",
        "MCP server 'shop' lists 'go'",
        "MCP server 'shop' lists '2fa'",
    ):
        assert caplog.text.count(text) == 1, text
    assert "disk.free" not in caplog.text


async def test_a_prefix_makes_names_of_its_own(
    toolset: Toolset, caplog: pytest.LogCaptureFixture
) -> None:
    rivals = [
        toolset("shop", "rival", prefix="s", tools=("search", "pay")),
        toolset("web", "search"),
    ]
    shop = talk(tools=[pay, *rivals])
    await shop.say("call s_search {}")
    assert sorted(shop.offered) == ["pay", "s_pay", "s_search", "search"]
    assert shop.told[-1]["content"][0]["text"] == "search ran"
    assert "lists" not in caplog.text


class Others(BaseToolset):
    """Tools that come from neither the agent itself nor an MCP server."""

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        """One tool."""
        del readonly_context

        def search() -> str:
            """Search here."""
            return "found here"

        return [FunctionTool(search)]


async def test_tools_of_other_toolsets_count_as_the_agents_own(toolset: Toolset) -> None:
    conversation = talk(tools=[Others(), toolset("web", "search")])
    await conversation.say("call search {}")
    assert sorted(conversation.offered) == ["search", "web_search"]
    assert conversation.told == [{"result": "found here"}]


async def test_agents_that_share_a_toolset_have_names_of_their_own(toolset: Toolset) -> None:
    """In one turn: what was worked out for one agent does not count for the other."""
    web = toolset("web", "search")

    def search() -> str:
        """Search here."""
        return "found here"

    script = [call("search"), call("transfer_to_agent", agent_name="below"), call("search"), "done"]
    conversation = talk(*script, tools=[web], below=[web, search])
    await conversation.say("go")
    assert sorted(conversation.offered) == ["search", "transfer_to_agent", "web_search"]
    assert conversation.told[-1] == {"result": "found here"}


def test_the_names_that_adk_keeps_for_itself() -> None:
    assert mcp_tool._RESERVED_TOOL_NAMES == RESERVED  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("line", "code", "expected"),
    [
        (
            command("rival"),
            1,
            ["!!", "lists 'pay': offered as 'shop_pay'", "lists 'a b': left out"],
        ),
        (command("search"), 0, ["ok", "1 tool: search"]),
        ((sys.executable, "-c", "raise SystemExit(3)"), 1, ["!!", "cannot be reached: "]),
    ],
)
def test_doctor_says_what_an_agent_gets_of_a_server(
    line: tuple[str, ...],
    code: int,
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = {"model": "scripted:demo", "tools": [f"{__name__}:pay"], "mcp": ["shop", "shop"]}
    servers = {"shop": {"command": list(line), "timeout": 20}}
    settings = {"apps": {"desk": {"agent": agent}}, "mcp_servers": servers}
    (tmp_path / "lango.yaml").write_text(json.dumps(settings))
    report = run("doctor", "--no-models")
    assert report.code == code, report.out + report.err
    mark, *problems = expected
    assert f"{mark}  MCP server shop of desk" in report.out
    assert [problem for problem in problems if problem not in report.out] == []
