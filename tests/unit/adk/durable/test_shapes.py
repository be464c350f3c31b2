"""Which agent trees count as resumable."""

import warnings
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    LoopAgent,  # pyright: ignore[reportDeprecated]
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]  # people have them
)
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import START, Workflow
from pydantic import BaseModel

from faults.recovery import kill_shapes, shapes
from lango.adk import versions
from lango.adk.durable.shapes import check_answerable, fingerprint, missing_parts, shape_of
from lango.adk.models.adapter import ModelAdapter
from lango.adk.runner import AgentRunner
from lango.adk.transfers import check_names, root_of
from lango.errors import AppLoadError, NotResumableError

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")


def agent(name: str = "root", **options: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ModelAdapter("scripted:demo"), **options)


def sequence(*agents: BaseAgent) -> BaseAgent:
    return SequentialAgent(name="steps", sub_agents=list(agents))  # pyright: ignore[reportDeprecated]


class OwnTool(AgentTool):
    """An AgentTool with ideas of its own."""


class OwnAgent(BaseAgent):
    """An agent class that lango does not know."""


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)

    class OwnSequence(SequentialAgent):  # pyright: ignore[reportDeprecated]
        """A sequence that runs in an order of its own."""

        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
            async for event in super()._run_async_impl(ctx):
                yield event


async def numbers(node_input: Any) -> Any:
    """A node that gives one thing after the other."""
    yield node_input


SHAPES = kill_shapes.SHAPES | shapes.SHAPES


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_of_the_sweep_is_exact(name: str) -> None:
    assert shape_of(root_of(SHAPES[name].make())).problems == ()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: agent(sub_agents=[sequence(agent("a"))]), "steps"),
        (lambda: agent(sub_agents=[agent("a", mode="task")]), "task"),
        (lambda: agent(sub_agents=[agent("a", mode="single_turn")]), "single_turn"),
        (lambda: agent(tools=[OwnTool(agent("a"))]), "overrides how it runs"),
        (
            lambda: agent(tools=[AgentTool(sequence(OwnAgent(name="a")))]),
            "the tool steps runs",
        ),
        (lambda: OwnSequence(name="own", sub_agents=[agent("a")]), "overrides how it runs"),
        (lambda: sequence(OwnSequence(name="own")), "overrides how it runs"),
        (lambda: sequence(agent("a", sub_agents=[agent("b")])), "has sub-agents"),
        (lambda: OwnAgent(name="own"), "overrides how it runs"),
        (lambda: Workflow(name="wf", edges=[(START, numbers)]), "generator"),
    ],
)
def test_what_was_never_swept_is_not_resumable(make: Any, problem: str) -> None:
    shape = shape_of(make())
    assert not shape.is_exact
    assert problem in " ".join(shape.problems)


def plain() -> str:
    """Do nothing."""
    return ""


def test_a_fingerprint_knows_names_kinds_and_tools() -> None:
    same = fingerprint(agent(sub_agents=[agent("a")]))
    assert same == fingerprint(agent(sub_agents=[agent("a")]))
    others = [
        agent("other", sub_agents=[agent("a")]),
        agent(sub_agents=[agent("b")]),
        agent(sub_agents=[agent("a", tools=[plain])]),
        sequence(agent("a")),
    ]
    assert len({same, *map(fingerprint, others)}) == 5


def test_what_a_changed_tree_lacks() -> None:
    root = agent(sub_agents=[agent("a", tools=[plain])])
    assert missing_parts(root, {"root", "a"}, {"plain": "a"}) == []
    assert missing_parts(root, {"root", "gone"}, {}) == ["the agent gone"]
    assert missing_parts(root, {"a"}, {"other": "a"}) == ["the tool other of a"]


class Form(BaseModel):
    """An output schema."""

    x: int


def test_tools_that_adk_adds_are_not_missed() -> None:
    root = agent(sub_agents=[agent("a", tools=[plain], output_schema=Form)])
    assert missing_parts(root, set(), {"transfer_to_agent": "root"}) == []
    assert missing_parts(root, set(), {"set_model_response": "a"}) == []
    alone = agent()
    assert missing_parts(alone, set(), {"transfer_to_agent": "root"}) != []
    assert missing_parts(alone, set(), {"set_model_response": "root"}) != []


def test_two_agents_of_one_name_are_refused() -> None:
    check_names(agent(sub_agents=[agent("a"), agent("b")]))
    with pytest.raises(AppLoadError, match="named a"):
        check_names(sequence(agent("a"), agent("b", sub_agents=[agent("a")])))
    with pytest.raises(AppLoadError, match="named a"):
        AgentRunner(
            sequence(agent("a"), agent("b", sub_agents=[agent("a")])), InMemorySessionService()
        )


def below(*agents: BaseAgent, kind: Any = SequentialAgent) -> BaseAgent:  # pyright: ignore[reportDeprecated]
    """An LlmAgent that transfers to a container."""
    return agent(sub_agents=[kind(name="steps", sub_agents=list(agents))])


ANSWERABLE: dict[str, Callable[[], BaseAgent]] = {
    "root": lambda: agent("asker"),
    "sub-agent": lambda: agent(sub_agents=[agent("asker")]),
    "sequence": lambda: sequence(agent("asker"), agent("next")),
    "below it": lambda: sequence(agent("first", sub_agents=[agent("asker")]), agent("next")),
    "nested": lambda: LoopAgent(  # pyright: ignore[reportDeprecated]
        name="outer", sub_agents=[sequence(agent("asker"), agent("next"))]
    ),
    "last": lambda: below(agent("first"), agent("asker")),
    "parallel": lambda: below(agent("asker"), agent("other"), kind=ParallelAgent),  # pyright: ignore[reportDeprecated]
}
LEAVING_OUT: dict[str, Callable[[], BaseAgent]] = {
    "sequence": lambda: below(agent("asker"), agent("next")),
    "below it": lambda: below(agent("first", sub_agents=[agent("asker")]), agent("next")),
    "loop": lambda: below(agent("asker"), kind=LoopAgent),  # pyright: ignore[reportDeprecated]
    "own class": lambda: OwnAgent(name="own", sub_agents=[sequence(agent("asker"), agent("next"))]),
}


@pytest.mark.parametrize("name", ANSWERABLE)
def test_an_answer_is_taken_where_the_agents_around_go_on(name: str) -> None:
    check_answerable(ANSWERABLE[name](), "asker")


@pytest.mark.parametrize("name", LEAVING_OUT)
def test_an_answer_is_refused_where_agents_would_be_left_out(name: str) -> None:
    with pytest.raises(NotResumableError, match="steps"):
        check_answerable(LEAVING_OUT[name](), "asker")


def test_an_untested_version_of_adk_is_not_resumable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shape_of(agent()).is_exact
    monkeypatch.setattr(versions, "ADK_VERSION", "2.99.1")
    assert shape_of(agent()).problems == ("google-adk 2.99.1 has not passed lango's kill sweep",)
    monkeypatch.setenv("ADK_SWEEP", "2.99.1")
    assert shape_of(agent()).is_exact
