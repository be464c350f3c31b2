"""Builds ADK objects: an agent from a few arguments, and the services it runs on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.models.base_llm import BaseLlm
from google.adk.sessions.base_session_service import BaseSessionService
from google.genai import types

from lango.adk.artifacts import SqlArtifactService
from lango.adk.models.adapter import ModelAdapter
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.tools.adapter import AdkTool, as_adk_tools, tool_name
from lango.errors import ConfigError
from lango.providers.base import Provider
from lango.store.sessions.store import SqlSessionStore
from lango.tools.base import Tool

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


def _refuse_namesakes(agent: str, tools: Iterable[AdkTool]) -> None:
    """Refuse duplicate tool names; the names in a toolset are unknown until it runs."""
    names = [tool_name(tool) for tool in tools]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise ConfigError(f"Agent {agent} has more than one tool called {', '.join(twice)}.")


@dataclass(frozen=True, slots=True)
class AgentServices:
    """The services that store sessions and artifacts."""

    sessions: BaseSessionService
    artifacts: BaseArtifactService
    store: SqlSessionStore | None = None

    async def close(self) -> None:
        """Close the store, if it was opened here."""
        if isinstance(self.sessions, SessionServiceAdapter):
            await self.sessions.close()


def services(
    store: SqlSessionStore | str | None,
    *,
    tenant: str = "",
    root_agent_name: str = "",
    token_budget: int | None = 0,
) -> AgentServices:
    """ADK's services on a store or its URL; without one, in the process's memory."""
    if store is None:
        from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
        from google.adk.sessions.in_memory_session_service import InMemorySessionService

        return AgentServices(InMemorySessionService(), InMemoryArtifactService())
    sessions = SessionServiceAdapter(
        store, tenant=tenant, root_agent_name=root_agent_name, token_budget=token_budget
    )
    artifacts = SqlArtifactService(sessions.store, tenant=tenant, requires_session=True)
    return AgentServices(sessions, artifacts, sessions.store)
