"""A graph: functions and agents as nodes, a route, two lanes that join."""

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.context import Context
from google.adk.events.event import Event
from google.adk.workflow import START, JoinNode, Workflow
from google.genai import types


def read_request(ctx: Context, node_input: types.Content) -> str:
    """Keeps the text of the request."""
    text = "".join(part.text or "" for part in node_input.parts or [])
    ctx.state["request"] = text
    return text


def choose(node_input: str) -> Event:
    """Sends urgent requests another way."""
    route = "urgent" if "urgent" in node_input else "normal"
    return Event(output=node_input, route=route)  # pyright: ignore[reportCallIssue]


def alarm(node_input: str) -> str:
    """Wakes the person on duty."""
    return f"woken for: {node_input}"


def count_words(node_input: str) -> dict[str, int]:
    """One lane: a plain function."""
    return {"words": len(node_input.split())}


classifier = LlmAgent(
    name="classifier",
    model="gemini-2.5-flash",
    instruction="Name the topic of the request in one word.",
    output_key="topic",
)

joined = JoinNode(name="joined")


def combine(ctx: Context, node_input: dict[str, Any]) -> str:
    """Puts the lanes together."""
    return f"{ctx.state['topic']}, {node_input['count_words']['words']} words"


answerer = LlmAgent(
    name="answerer",
    model="gemini-2.5-flash",
    instruction="Answer the request: {request}",
    output_key="answer",
)

edges: list[Any] = [
    (START, read_request, choose),
    (choose, {"urgent": alarm, "normal": (count_words, classifier)}),
    ((count_words, classifier), joined),
    (joined, combine, answerer),
]
root_agent = Workflow(name="desk", edges=edges)
