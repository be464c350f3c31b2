"""Names for the tools of MCP servers and APIs: valid for providers, and unique within an agent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

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

_CHOICE: Final = {"MCP server": "tools", "OpenAPI document": "operations"}
"""The setting that names the tools to offer."""
ToolSource = Literal["MCP server", "OpenAPI document"]
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class ServerTools:
    """The tools that one server lists, by the server's own names."""

    server: str
    tools: tuple[str, ...]
    prefix: str = ""
    kind: ToolSource = "MCP server"

    @property
    def remedy(self) -> str:
        """What helps against a name that is not offered."""
        noun = self.kind.rpartition(" ")[2]
        return (
            f"Set the {noun}'s `prefix`, or name in its `{_CHOICE[self.kind]}` the ones to offer."
        )

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
    listings: Sequence[ServerTools], used_names: Collection[str] = ()
) -> list[list[NamedTool]]:
    """Name every tool of an agent's servers, in the order of the listings.

    No server's tool gets a name in `used_names` (the agent's own tools), or one that another server
    lists too: a call could reach the wrong tool. Such a tool gets its server's name as a prefix;
    if that name is also invalid or taken, the tool is left out.
    """
    counts = Counter(
        name for listing in listings for name in {listing.wanted(tool) for tool in listing.tools}
    )
    used_names = RESERVED.union(used_names)
    unique = {name for name, servers in counts.items() if servers == 1} - used_names
    longer = Counter(
        name for listing in listings for name in {listing.longer(tool) for tool in listing.tools}
    )
    free = {name for name, servers in longer.items() if servers == 1} - used_names.union(counts)
    return [_named(listing, unique, free, used_names) for listing in listings]


def _named(
    listing: ServerTools,
    unique: Collection[str],
    free: Collection[str],
    used_names: Collection[str],
) -> list[NamedTool]:
    named_tools: list[NamedTool] = []
    given_names: set[str] = set()
    for tool in listing.tools:
        name, longer = listing.wanted(tool), listing.longer(tool)
        problem = _problem(listing, name, unique, used_names)
        if tool in RESERVED:  # McpTool raises for these, even under another name
            named_tools.append(_left_out(listing, tool, "a tool of ADK has that name"))
        elif not problem and name not in given_names:
            named_tools.append(NamedTool(tool, name))
            given_names.add(name)
        elif not problem or longer in given_names:
            named_tools.append(
                _left_out(
                    listing, tool, f"the {listing.kind} lists {longer if problem else name!r} twice"
                )
            )
        elif tool and longer in free and TOOL_NAME.fullmatch(longer):
            named_tools.append(_renamed(listing, tool, longer, problem))
            given_names.add(longer)
        else:
            named_tools.append(_left_out(listing, tool, problem))
    return named_tools


def _problem(
    listing: ServerTools, name: str, unique: Collection[str], used_names: Collection[str]
) -> str:
    """Why a server's tool cannot have the wanted name; empty if it can."""
    if not TOOL_NAME.fullmatch(name):
        return f"model providers take {NAME_RULE}"
    if name in used_names:
        return f"another tool of the agent is called {name!r}"
    return "" if name in unique else f"another {listing.kind} also lists {name!r}"


def _renamed(listing: ServerTools, tool: str, name: str, problem: str) -> NamedTool:
    listed_name = repr(tool[:80])
    return NamedTool(
        tool, name, f"lists {listed_name}: offered as {name!r}, because {problem}. {listing.remedy}"
    )


def _left_out(listing: ServerTools, tool: str, problem: str) -> NamedTool:
    listed_name = repr(tool[:80])
    return NamedTool(
        tool, None, f"lists {listed_name}: left out, because {problem}. {listing.remedy}"
    )
