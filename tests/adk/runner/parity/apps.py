"""The apps under test, each built anew for every Runner."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import Any

from google.adk.agents import (
    LlmAgent,
    ParallelAgent,  # pyright: ignore[reportDeprecated]  # people have them
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.context import Context
from google.adk.apps.app import App, EventsCompactionConfig, ResumabilityConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.events.request_input import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, BaseNode, JoinNode, Workflow, node
from google.genai.types import UserContent

from tests.adk.runner.scripted import REQUESTS, ScriptedLlm, SummaryLlm
from tests.adk.runner.tools import (
    look,
    pay,
    read_note,
    recall,
    remember,
    save_note,
    survey,
    ticket,
)

# Without a2a, ADK compiles a module that needs it for every node it makes, to no avail.
if find_spec("a2a") is None:
    sys.modules["google.adk.agents.remote_a2a_agent"] = None  # pyright: ignore[reportArgumentType]

APP = "features"


def _app(root: BaseNode, *, resumable: bool = False) -> App:
    config = ResumabilityConfig(is_resumable=True) if resumable else None
    return App(name=APP, root_agent=root, resumability_config=config)


def _agent(name: str = "root", script: str = "", **options: Any) -> LlmAgent:
    tools: list[Any] = [remember, recall, look, *options.pop("tools", [])]
    return LlmAgent(name=name, model=ScriptedLlm(script=script), tools=tools, **options)


def plain() -> App:
    """One agent that keeps its last answer."""
    return _app(_agent(output_key="last_answer"))


def compacting(*, resumable: bool = False) -> App:
    """Summarises every two invocations, the last one before them included."""
    app = _app(_agent(), resumable=resumable)
    app.events_compaction_config = EventsCompactionConfig(
        summarizer=LlmEventSummarizer(llm=SummaryLlm()), compaction_interval=2, overlap_size=1
    )
    return app


def resumable() -> App:
    """One agent whose invocations can be resumed."""
    return _app(_agent(output_key="last_answer"), resumable=True)


def sequence() -> App:
    """Three agents in a row, with control events between them."""
    first = _agent("first", 'remember {"key": "a", "value": "1"} then look {"number": 1}')
    second = _agent("second", 'look {"number": 2} then look {"number": 3}', output_key="second")
    third = _agent("third", 'remember {"key": "c", "value": "3"}', output_key="third")
    root = SequentialAgent(  # pyright: ignore[reportDeprecated]
        name="root", sub_agents=[first, second, third]
    )
    return _app(root, resumable=True)


def confirming() -> App:
    """An agent that must ask before it pays."""
    return _app(_agent(tools=[FunctionTool(pay, require_confirmation=True)]))


def long_running() -> App:
    """An agent with tools that end later than they return."""
    return _app(_agent(tools=[LongRunningFunctionTool(ticket), LongRunningFunctionTool(survey)]))


def parallel() -> App:
    """Three agents at once, one of which must ask before it pays."""
    paying = FunctionTool(pay, require_confirmation=True)
    agents: list[Any] = [
        _agent("left", 'remember {"key": "left", "value": "1"} then look {"number": 1}'),
        _agent("right", 'pay {"amount": 3} then recall {"key": "spent"}', tools=[paying]),
        _agent("middle", 'look {"number": 2}', output_key="middle"),
    ]
    root = ParallelAgent(name="root", sub_agents=agents)  # pyright: ignore[reportDeprecated]
    return _app(root, resumable=True)


def task() -> App:
    """An agent that hands a task to another, which talks to the user until it is done."""
    helper = _agent("helper", mode="task", description="helps", output_key="helped")
    return _app(_agent(sub_agents=[helper], tools=[LongRunningFunctionTool(ticket)]))


def keeping() -> App:
    """An agent that keeps notes as artifacts."""
    return _app(_agent(tools=[save_note, read_note, LongRunningFunctionTool(ticket)]))


def measure(ctx: Context, node_input: object) -> dict[str, int]:
    """A node with an output and a change of state."""
    ctx.state["measured"] = len(str(node_input)) > 0
    return {"length": 7}


def left(node_input: dict[str, int]) -> str:
    """One lane."""
    return f"left {node_input['length']}"


def right(node_input: dict[str, int]) -> str:
    """Another lane."""
    return f"right {node_input['length']}"


async def ask() -> AsyncIterator[RequestInput]:
    """A node that waits for a person."""
    yield RequestInput(message="go on?", response_schema=None)


def note(ctx: Context, node_input: object) -> None:
    """A node that leaves nothing but a change of state."""
    ctx.state["noted"] = str(node_input)
    ctx.state["notes"] = int(ctx.state.get("notes", 0)) + 1


def tell() -> None:
    """A node that leaves nothing at all; the requests show each time it ran."""
    REQUESTS.get([]).append([UserContent("the quiet node ran")])


def finish(ctx: Context) -> str:
    """The last node."""
    return f"finished, {ctx.state.get('noted')}"


def workflow() -> App:
    """A graph: two lanes that join, a pause, a silent node, an agent."""
    join = JoinNode(name="join")
    writer = _agent("writer", 'look {"number": 4}', output_key="written")
    asking = node(ask)
    edges: list[Any] = [
        (START, measure),
        (measure, (left, right)),
        ((left, right), join),
        (join, asking, note, writer, finish),
    ]
    return _app(Workflow(name="root", edges=edges), resumable=True)


def gates() -> App:
    """Confirmed nodes that return nothing, then another pause: none of them may run twice.

    The marks of their end are events that carry a node's path and no more.
    """
    noting = node(note, name="noting", require_confirmation=True, rerun_on_resume=True)
    quiet = node(tell, name="quiet", require_confirmation=True, rerun_on_resume=True)
    edges: list[Any] = [(START, measure, noting, quiet, node(ask), finish)]
    return _app(Workflow(name="root", edges=edges))
