"""Names for the tools of MCP servers: valid for providers, and unique within an agent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

TOOL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""A tool name that every model provider accepts."""
NAME_RULE: Final = "1 to 64 of A-Z, a-z, 0-9, _ and -, with a letter or _ first"
RESERVED: Final = frozenset(
    {
        *("adk_request_confirmation", "adk_request_credential", "adk_request_input"),
        *("set_model_response", "transfer_to_agent"),
    }
)
"""Names of ADK's own tools; ADK refuses them from an MCP server."""

_REMEDY: Final = "Set the server's `prefix`, or name in its `tools` the ones to offer."
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class ServerTools:
    """The tools that one server lists, by the server's own names."""

    server: str
    tools: tuple[str, ...]
    prefix: str = ""

    def wanted(self, tool: str) -> str:
        """The name that a tool gets if no other tool has it.

        MCP allows dots in names; providers do not.
        """
        name = tool.replace(".", "_")
        return f"{self.prefix}_{name}" if self.prefix and name else name

    def longer(self, tool: str) -> str:
        """The name prefixed with the server's name: for a tool that cannot have the wanted one."""
        return f"{_ILLEGAL.sub('_', self.server)}_{tool.replace('.', '_')}"


@dataclass(frozen=True, slots=True)
class NamedTool:
    """A tool of a server, and its name for models."""

    tool: str
    name: str | None
    """None for a tool that is left out."""
    problem: str = ""
    """Why it does not have the wanted name, and the remedy."""


def server_tool_names(
    listings: Sequence[ServerTools], taken: Collection[str] = ()
) -> list[list[NamedTool]]:
    """Name every tool of an agent's servers, in the order of the listings.

    No server's tool gets a name in `taken` (the agent's own tools), or one that another server
    lists too: a call could reach the wrong tool. Such a tool gets its server's name as a prefix;
    if that name is invalid or taken as well, the tool is left out.
    """
    counts = Counter(
        name for listing in listings for name in {listing.wanted(tool) for tool in listing.tools}
    )
    taken = RESERVED.union(taken)
    unique = {name for name, servers in counts.items() if servers == 1} - taken
    longer = Counter(
        name for listing in listings for name in {listing.longer(tool) for tool in listing.tools}
    )
    free = {name for name, servers in longer.items() if servers == 1} - taken.union(counts)
    return [_named(listing, unique, free, taken) for listing in listings]


def _named(
    listing: ServerTools, unique: Collection[str], free: Collection[str], taken: Collection[str]
) -> list[NamedTool]:
    named: list[NamedTool] = []
    used: set[str] = set()
    for tool in listing.tools:
        name, longer = listing.wanted(tool), listing.longer(tool)
        problem = _problem(name, unique, taken)
        if tool in RESERVED:  # McpTool raises for these, even under another name
            named.append(_left_out(tool, "ADK calls a tool of its own so"))
        elif not problem and name not in used:
            named.append(NamedTool(tool, name))
            used.add(name)
        elif not problem or longer in used:
            named.append(_left_out(tool, f"the server lists {longer if problem else name!r} twice"))
        elif tool and longer in free and TOOL_NAME.fullmatch(longer):
            named.append(_renamed(tool, longer, problem))
            used.add(longer)
        else:
            named.append(_left_out(tool, problem))
    return named


def _problem(name: str, unique: Collection[str], taken: Collection[str]) -> str:
    """Why a server's tool cannot have the wanted name; empty if it can."""
    if not TOOL_NAME.fullmatch(name):
        return f"model providers take {NAME_RULE}"
    if name in taken:
        return f"another tool of the agent is called {name!r}"
    return "" if name in unique else f"another MCP server lists {name!r} as well"


def _renamed(tool: str, name: str, problem: str) -> NamedTool:
    shown = repr(tool[:80])
    return NamedTool(
        tool, name, f"lists {shown}: offered as {name!r}, because {problem}. {_REMEDY}"
    )


def _left_out(tool: str, problem: str) -> NamedTool:
    shown = repr(tool[:80])
    return NamedTool(tool, None, f"lists {shown}: left out, because {problem}. {_REMEDY}")
