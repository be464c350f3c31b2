"""A real MCP server, run as a process of its own: `mcp_server.py KIND [PORT]`.

Without a port it speaks on its standard input and output. On HTTP it prints a line once it is
ready. NOTES names a FIFO or a file that tells the test what happened.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from starlette.applications import Starlette


def note(text: str) -> None:
    """Tell the test; on a FIFO this waits until the test listens."""
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{text}\n")


def plain() -> MCPServer:
    """A server with a few tools."""
    server = MCPServer("plain")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def secrets() -> str:
        """The names of the variables this process was given."""
        return " ".join(sorted(os.environ))

    @server.tool()
    def heard(ctx: Context[Any]) -> str:
        """The header X-Key of this call."""
        assert ctx.request_context.request is not None
        return str(ctx.request_context.request.headers.get("x-key"))

    @server.tool()
    async def dig(depth: int, ctx: Context[Any]) -> str:
        """Dig, and tell how far it is."""
        for number in range(1, depth + 1):
            await ctx.report_progress(number, depth, f"at {number}")
        return "there"

    @server.tool()
    async def hang() -> str:
        """Never answer."""
        note("it hangs")
        await anyio.sleep_forever()
        return "never"

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ToolError("the disk is full")

    @server.tool()
    def remove(name: str) -> str:
        """Remove something for good."""
        note(f"removed {name}")
        return f"removed {name}"

    return server


def listing(*tools: types.Tool) -> Server[Any]:
    """A server that lists these tools and answers any call."""

    async def on_list_tools(*_: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(tools))

    async def on_call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text=f"{params.name} ran")])

    return Server("listing", on_list_tools=on_list_tools, on_call_tool=on_call_tool)


def bad_schemas() -> Server[Any]:
    """One tool that is fine, among others that no provider would take."""
    kinds = {"fine": "string", "no_type": "no such type", "odd_type": 7}
    return listing(
        *(
            types.Tool(
                name=name, input_schema={"type": "object", "properties": {"x": {"type": kind}}}
            )
            for name, kind in kinds.items()
        )
    )


def rival_names() -> Server[Any]:
    """Names of an agent's own tools, of ADK, of another server, and names no provider takes."""
    names = ["go", "pay", "search", "transfer_to_agent", "a b", "../../etc", "", "x" * 200]
    names += ["go", "2fa", "disk.free"]
    return listing(*(types.Tool(name=name, input_schema={"type": "object"}) for name in names))


def searching() -> Server[Any]:
    """One tool, whose name another server has, too."""
    return listing(types.Tool(name="search", input_schema={"type": "object"}))


class Announced(uvicorn.Server):
    """Says when it is ready."""

    async def startup(self, sockets: Any = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        print("ready", flush=True)


def serve_http(app: Starlette, port: int) -> None:
    """Serve until killed."""
    Announced(uvicorn.Config(app, port=port, log_level="warning")).run()


async def serve_stdio(server: Server[Any]) -> None:
    """Serve until the input ends."""
    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())


def main(kind: str, port: str = "") -> None:
    """Be the server of this kind."""
    print(f"a {kind} server begins", file=sys.stderr, flush=True)
    if kind == "slow":
        time.sleep(2)
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    lowlevel = {"empty": listing, "bad": bad_schemas, "rival": rival_names, "search": searching}
    server = lowlevel[kind]() if kind in lowlevel else plain()
    if port:
        serve_http(server.streamable_http_app(), int(port))
    elif isinstance(server, MCPServer):
        server.run()
    else:
        anyio.run(serve_stdio, server)
    if kind == "stubborn":
        time.sleep(1_000)


if __name__ == "__main__":
    main(*sys.argv[1:])
