"""ADK's parts made from ours."""

import pytest
from google.adk.tools.function_tool import FunctionTool

from lango.adk.apps.build import llm_agent
from lango.errors import ConfigError
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
