"""The settings of apps, and of the agents that the file describes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from lango.config.compaction import CompactionSettings
from lango.config.section import Section

RESERVED_NAME = "user"
"""ADK's name for the user; no agent can have it."""


class ToolSettings(Section):
    """A tool with options of its own."""

    model_config = ConfigDict(extra="allow")

    use: str = Field(description="builtin:NAME or package.module:attribute")

    @property
    def options(self) -> dict[str, Any]:
        """The keys other than `use`; the tool validates them."""
        return dict(self.model_extra or {})


def _by_name(value: Any) -> Any:
    """Expand the short form of a tool without options, its name alone."""
    return {"use": value} if isinstance(value, str) else value


ToolItem = Annotated[
    ToolSettings, BeforeValidator(_by_name, json_schema_input_type=str | ToolSettings)
]


class AgentSettings(Section):
    """An agent that this file describes."""

    name: str | None = Field(
        default=None, description="An identifier (default: its key, the name of the app)."
    )
    description: str = Field(
        default="", description="Its purpose, for agents that may transfer to it."
    )
    model: str = Field(description="provider:name, such as openai:gpt-5 or scripted:demo")
    fallbacks: list[str] = Field(
        default_factory=list[str], description="Models to use, in order, when that one fails."
    )
    instruction: str = Field(default="", description="The system instruction.")
    temperature: float | None = Field(default=None, ge=0, description="Left to the model if null.")
    max_tokens: int | None = Field(default=None, ge=1, description="The most tokens of an answer.")
    context_window: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of the context window, for a model that lango does not know.",
    )
    tools: list[ToolItem] = Field(
        default_factory=list[ToolSettings],
        description="builtin:NAME or package.module:attribute, or those under `use` with options.",
    )
    mcp: list[str] = Field(
        default_factory=list[str], description="The MCP servers, by name, whose tools it has."
    )
    openapi: list[str] = Field(
        default_factory=list[str],
        description="The OpenAPI documents, by name, whose operations it has as tools.",
    )
    sub_agents: list[AgentSettings] = Field(
        default_factory=list["AgentSettings"], description="Agents that it can transfer to."
    )

    def family(self) -> Iterator[AgentSettings]:
        """This agent and its sub-agents, recursively."""
        yield self
        for sub in self.sub_agents:
            yield from sub.family()


def check_names(agent: AgentSettings, path: str, default: str, used_names: set[str]) -> None:
    """Check that each agent of a tree has a unique name that ADK accepts."""
    name = default if agent.name is None else agent.name
    if not name.isidentifier() or name == RESERVED_NAME:
        raise ValueError(
            f"{path}.name: {name!r} cannot name an agent; write letters, digits and underscores, "
            f"beginning with a letter, and not {RESERVED_NAME!r}"
        )
    if name in used_names:
        raise ValueError(f"{path}.name: another agent of the app is called {name}")
    used_names.add(name)
    for number, sub in enumerate(agent.sub_agents):
        check_names(sub, f"{path}.sub_agents.{number}", "", used_names)


class MemorySettings(Section):
    """Memory of users across sessions."""

    embeddings: str | None = Field(
        default=None,
        description=(
            "provider:name of an embedding model, such as openai:text-embedding-3-small: searches "
            "on PostgreSQL with pgvector also find texts that say it in other words. null: by "
            "words alone."
        ),
    )


class AppSettings(Section):
    """One root agent and what goes with it: an agent written here, or ADK code."""

    agent: AgentSettings | None = Field(default=None, description="The agent, written here.")
    load: str | None = Field(
        default=None,
        description=(
            "package.module:attribute: an ADK agent, App, Workflow, or a function for one; or the "
            "folder of an agent, as `adk run` takes it."
        ),
    )
    next_turn: Literal["sticky", "root"] = Field(
        default="sticky",
        description="Which agent answers next: the last speaker (sticky), or always the root.",
    )
    memory: bool | MemorySettings = Field(
        default=False,
        description=(
            "Whether messages join the user's memory when their turn completes; `load_memory` and "
            "`preload_memory` search it. Settings instead of `true` turn it on as well."
        ),
    )
    compaction: CompactionSettings | None = Field(
        default=None, description="Summaries of long conversations; null: ADK code's own, if any."
    )

    @property
    def embeddings(self) -> str | None:
        """The embedding model of memory, if it has one."""
        return self.memory.embeddings if isinstance(self.memory, MemorySettings) else None

    @model_validator(mode="after")
    def _one_origin(self) -> AppSettings:
        if (self.agent is None) == (self.load is None):
            raise ValueError("give either `agent` (written here) or `load` (from code), not both")
        return self


def _loaded(value: Any) -> Any:
    """Expand the short form of an app: a text is code to load."""
    return {"load": value} if isinstance(value, str) else value


AppItem = Annotated[AppSettings, BeforeValidator(_loaded, json_schema_input_type=str | AppSettings)]
