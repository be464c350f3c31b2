"""ADK's parts made from ours."""

import pytest
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.load_memory_tool import load_memory_tool
from google.adk.tools.preload_memory_tool import preload_memory_tool

from lango.adk.apps.build import llm_agent, named_tools
from lango.errors import ConfigError, InvalidToolError, UnknownToolError
from lango.tools.base import Tool
from lango.tools.registry import load_tools


def clock() -> str:
    """Tell the time."""
    return "noon"


def test_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Agent helper has more than one tool called clock\."):
        llm_agent("helper", "scripted:demo", tools=[clock, FunctionTool(clock)])


def test_one_of_ours_and_one_of_adk_s_may_not_share_a_name_either() -> None:
    (ours,) = load_tools("builtin:time", {})

    def theirs() -> str:
        """Tell the time, differently."""
        return "noon"

    theirs.__name__ = ours.name
    with pytest.raises(ConfigError, match=f"more than one tool called {ours.name}"):
        llm_agent("helper", "scripted:demo", tools=[ours, theirs])


def test_different_names_are_welcome() -> None:
    agent = llm_agent("helper", "scripted:demo", tools=[*load_tools("builtin:time", {}), clock])
    assert agent.name == "helper"


def test_tools_of_adk_have_names_in_the_settings() -> None:
    assert named_tools("google.adk.tools:load_memory", {}) == [load_memory_tool]
    assert named_tools("google.adk.tools:preload_memory", {}) == [preload_memory_tool]
    with pytest.raises(InvalidToolError, match="has no options here"):
        named_tools("google.adk.tools:load_memory", {"timeout": 1})
    assert [made.name for made in load_tools("builtin:time", {})] == [
        made.name for made in named_tools("builtin:time", {}) if isinstance(made, Tool)
    ]
    with pytest.raises(UnknownToolError):
        named_tools("google.adk.tools:no_such_tool", {})
