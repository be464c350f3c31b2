"""Finding an agent by its name."""

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.workflow import START, Workflow

from lango.adk.transfers import find_agent, root_of, transfer_targets
from lango.errors import AppLoadError


def test_an_agent_is_found_in_a_graph_of_graphs() -> None:
    helper = LlmAgent(name="helper")
    writer = LlmAgent(name="writer", sub_agents=[helper])
    inner = Workflow(name="inner", edges=[(START, writer)])
    outer = Workflow(name="outer", edges=[(START, LlmAgent(name="first"), inner)])
    found = find_agent(outer, "writer")
    assert found is not None
    assert transfer_targets(found) == ["helper"]
    assert find_agent(outer, "helper") is not None
    assert find_agent(outer, "ghost") is None


def test_a_workflow_without_a_graph_has_no_agents() -> None:
    assert find_agent(Workflow(name="empty"), "missing") is None


def test_the_root_of_an_app_is_its_agent() -> None:
    agent = LlmAgent(name="root")
    assert root_of(App(name="mine", root_agent=agent)) is agent
    assert root_of(agent) is agent
    with pytest.raises(AppLoadError):
        root_of(App.model_construct(name="hollow", root_agent=None))
