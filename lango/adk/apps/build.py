"""Builds ADK objects: an agent from a few arguments, and the services it runs on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.memory.base_memory_service import BaseMemoryService
from google.adk.models.base_llm import BaseLlm
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types

from lango.adk.artifacts import SqlArtifactService
from lango.adk.memory import SqlMemoryService
from lango.adk.models.adapter import ModelAdapter
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.tools.adapter import AdkTool, as_adk_tools, tool_name
from lango.core.named_code import is_code_name
from lango.errors import ConfigError, InvalidToolError
from lango.providers.base import Provider
from lango.providers.embeddings import Embedder
from lango.store.sessions.store import SqlSessionStore
from lango.tools.base import Tool
from lango.tools.registry import BUILTIN_PREFIX, find, load_tools

Model = str | BaseLlm | Provider
"""A model's name ("openai:gpt-5"), an ADK model, or a lango provider."""


def llm_agent(
    name: str,
    model: Model,
    *,
    instruction: str = "",
    description: str = "",
    tools: Iterable[Tool | AdkTool] = (),
    sub_agents: Iterable[BaseAgent] = (),
    temperature: float | None = None,
    max_tokens: int | None = None,
) -> LlmAgent:
    """An agent with a model, an instruction, tools and sub-agents."""
    usable = as_adk_tools(tools)
    _refuse_namesakes(name, usable)
    return LlmAgent(
        name=name,
        model=model if isinstance(model, BaseLlm) else ModelAdapter(model),
        instruction=instruction,
        description=description,
        tools=usable,
        sub_agents=list(sub_agents),
        generate_content_config=types.GenerateContentConfig(
            temperature=temperature, max_output_tokens=max_tokens
        ),
    )


def named_tools(spec: str, options: Mapping[str, Any]) -> list[Tool | AdkTool]:
    """The tools of a name in `lango.yaml`, which may also be a tool or toolset of ADK's classes."""
    if is_code_name(spec) and not spec.startswith(BUILTIN_PREFIX):
        target = find(spec)
        if isinstance(target, BaseTool | BaseToolset):
            if options:
                raise InvalidToolError(f"{spec} is a tool of ADK's, which has no options here.")
            return [target]
    return [*load_tools(spec, options)]


def _refuse_namesakes(agent: str, tools: Iterable[AdkTool]) -> None:
    """Refuse duplicate tool names; the names in a toolset are unknown until it runs."""
    names = [tool_name(tool) for tool in tools]
    duplicates = sorted({name for name in names if name and names.count(name) > 1})
    if duplicates:
        raise ConfigError(f"Agent {agent} has more than one tool called {', '.join(duplicates)}.")


@dataclass(frozen=True, slots=True)
class AgentServices:
    """The services that store sessions, artifacts and memory."""

    sessions: BaseSessionService
    artifacts: BaseArtifactService
    memory: BaseMemoryService
    store: SqlSessionStore | None = None

    async def close(self) -> None:
        """Close what was opened here: the store and the embedding model."""
        if isinstance(self.memory, SqlMemoryService):
            await self.memory.close()
        if isinstance(self.sessions, SessionServiceAdapter):
            await self.sessions.close()


def services(
    store: SqlSessionStore | str | None,
    *,
    tenant: str = "",
    root_agent_name: str = "",
    token_budget: int | None = 0,
    embeddings: Embedder | str | None = None,
) -> AgentServices:
    """ADK's services on a store or its URL; without one, in the process's memory."""
    if store is None:
        from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
        from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
        from google.adk.sessions.in_memory_session_service import InMemorySessionService

        return AgentServices(
            InMemorySessionService(), InMemoryArtifactService(), InMemoryMemoryService()
        )
    sessions = SessionServiceAdapter(
        store, tenant=tenant, root_agent_name=root_agent_name, token_budget=token_budget
    )
    artifacts = SqlArtifactService(sessions.store, tenant=tenant, requires_session=True)
    memory = SqlMemoryService(
        sessions.store, tenant=tenant, requires_session=True, embeddings=embeddings
    )
    return AgentServices(sessions, artifacts, memory, sessions.store)
