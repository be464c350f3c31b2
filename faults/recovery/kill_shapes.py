"""The agents of the kill sweeps: one of every shape that lango resumes exactly."""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final

from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    LoopAgent,  # pyright: ignore[reportDeprecated]  # people have them
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.context import Context
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.models import BaseLlm
from google.adk.tools import exit_loop
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, JoinNode, Workflow
from google.genai import types

from lango.adk.apps.load import Root
from lango.adk.models.adapter import ModelAdapter
from lango.core.messages.messages import Message, ToolCall
from lango.providers.base import ModelRequest
from lango.testing import Reply as Answer
from lango.testing import ScriptedProvider
from lango.testing.kill_trials import HumanReply, TurnInput, effect

TURN: Final = "TURN"

Step = str | Sequence[tuple[str, dict[str, Any]]] | Callable[[ModelRequest], Any]
"""A model's answer: a text, calls, or a function of the request."""


@dataclass(frozen=True, slots=True)
class KillShape:
    """One shape: its agent, and its turns."""

    make: Callable[[], Root]
    turns: Sequence[TurnInput] = (f"{TURN} one",)
    state: dict[str, Any] | None = None
    side_by_side: bool = False  # while one part is at a failpoint, another may be writing


Rule = Callable[[ModelRequest], Answer]
"""Maps a request to the model's answer."""


def _adapted(rule: Rule) -> BaseLlm:
    return ModelAdapter(ScriptedProvider(rule=rule), "demo")


model_kind: ContextVar[Callable[[Rule], BaseLlm]] = ContextVar("model_kind", default=_adapted)
"""Makes the models of all shapes that are created here."""


def with_models(shape: KillShape, kind: Callable[[Rule], BaseLlm]) -> KillShape:
    """The same shape with models of another kind."""

    def make() -> Root:
        token = model_kind.set(kind)
        try:
            return shape.make()
        finally:
            model_kind.reset(token)

    return replace(shape, make=make)


def agent(name: str, *steps: Step, **options: Any) -> LlmAgent:
    """An agent whose model follows a script: the same request always gets the same answer."""
    model = model_kind.get()(lambda request: _reply(name, steps, request))
    return LlmAgent(name=name, model=model, **options)


def _reply(name: str, steps: Sequence[Step], request: ModelRequest) -> Answer:
    turn = _this_turn(request.messages)
    number = sum(message.is_assistant for message in turn)
    step: Any = steps[min(number, len(steps) - 1)]
    if callable(step):
        step = step(request)
    if isinstance(step, str):
        return Answer(f"{name} {number}: {step}")
    calls = [ToolCall("", tool, input=json.dumps(arguments)) for tool, arguments in step]
    return Answer(f"{name} {number} calls", calls=tuple(calls))


def _this_turn(messages: Sequence[Message]) -> Sequence[Message]:
    begins = [
        number
        for number, message in enumerate(messages)
        if message.role == "user" and TURN in message.content
    ]
    return messages[begins[-1] :] if begins else messages


def tool(
    name: str,
    *,
    idempotent: bool = False,
    state: str = "",
    delay: float = 0.0,
    artifact: bool = False,
    **options: Any,
) -> FunctionTool:
    """A tool whose effect is counted."""

    async def run(k: str, tool_context: ToolContext) -> dict[str, Any] | None:
        await asyncio.sleep(delay)
        effect(f"{name} {k}")
        if state:
            for scope in ("", "user:", "temp:"):
                tool_context.state[f"{scope}{state}"] = k
        if artifact:
            version = await tool_context.save_artifact("notes.txt", types.Part(text=k))
            return {"version": version}
        return {"ok": f"{name} {k}"}

    run.__name__ = name
    run.__doc__ = f"Do {name}."
    run.idempotent = idempotent  # pyright: ignore[reportFunctionMemberAccess]
    return FunctionTool(run, **options)


def _single(*, idempotent: bool) -> KillShape:
    def make() -> Root:
        return agent(
            "root",
            [("t1", {"k": "a"})],
            [("t2", {"k": "b"})],
            "done",
            tools=[
                tool("t1", idempotent=idempotent, state="s1"),
                tool("t2", idempotent=idempotent, state="s2"),
            ],
            output_key="out",
        )

    return KillShape(make, (f"{TURN} one", f"{TURN} two"), {"begun": 1})


def _parallel_tools() -> Root:
    tools = [
        tool("t0", idempotent=True, state="s0", delay=0.002),
        tool("t1", state="s1", delay=0.004),
        tool("t2", delay=0.006),
    ]
    calls = [("t0", {"k": "a"}), ("t1", {"k": "b"}), ("t2", {"k": "c"})]
    return agent("root", calls, "done", tools=tools)


def _transfer_to(name: str) -> list[tuple[str, dict[str, Any]]]:
    return [("transfer_to_agent", {"agent_name": name})]


def _transfer_and_back() -> Root:
    steps = ([("t1", {"k": "x"})], _transfer_to("root"), "sub again")
    sub = agent("sub", *steps, tools=[tool("t1", idempotent=True)], output_key="sub_out")
    return agent("root", _transfer_to("sub"), "root back", "root end", sub_agents=[sub])


def _transfer_and_stay() -> Root:
    steps = ([("t1", {"k": "x"})], "sub final")
    sub = agent("sub", *steps, tools=[tool("t1", idempotent=True)], output_key="sub_out")
    return agent("root", _transfer_to("sub"), "root end", sub_agents=[sub])


def _sequence(name: str = "root") -> BaseAgent:
    first = agent("a", [("t1", {"k": "a"})], "A", tools=[tool("t1")], output_key="oa")
    middle = agent("b", "B", instruction="A said {oa?}.", output_key="ob")
    last = agent("c", [("t2", {"k": "c"})], "C", tools=[tool("t2", idempotent=True, state="sc")])
    return SequentialAgent(name=name, sub_agents=[first, middle, last])  # pyright: ignore[reportDeprecated]


def _parallel() -> Root:
    counted_tool = tool("t1", idempotent=True, delay=0.002)
    two = tool("t2", idempotent=True, delay=0.004)
    agents: list[BaseAgent] = [
        agent("a", [("t1", {"k": "a"})], "A", tools=[counted_tool], output_key="oa"),
        agent("b", [("t2", {"k": "b"})], "B", tools=[two], output_key="ob"),
        agent("c", "C", output_key="oc"),
    ]
    return ParallelAgent(name="root", sub_agents=agents)  # pyright: ignore[reportDeprecated]


def _works(request: ModelRequest) -> Any:
    done = sum(message.is_assistant for message in request.messages)
    return [("t1", {"k": f"k{done}"})] if done % 2 == 0 else f"round {done // 2 + 1}"


def _controls(request: ModelRequest) -> Any:
    over = any("round 3" in message.content for message in request.messages)
    return [("exit_loop", {})] if over else "go on"


def _loop() -> Root:
    worker = agent("w", _works, tools=[tool("t1", idempotent=True)])
    control = agent("c", _controls, tools=[exit_loop])
    return LoopAgent(name="root", max_iterations=5, sub_agents=[worker, control])  # pyright: ignore[reportDeprecated]


def _agent_tool() -> Root:
    steps = ([("t1", {"k": "h"})], [("t2", {"k": "i"})], "helper done")
    tools = [tool("t1"), tool("t2", idempotent=True, state="deep")]
    helper = agent("helper", *steps, tools=tools, output_key="ho")
    ask = [("helper", {"request": f"{TURN} inner"})]
    return agent("root", ask, "done", tools=[AgentTool(helper)])


def _sequence_as_tool() -> Root:
    ask = [("inner", {"request": f"{TURN} inner"})]
    return agent("root", ask, "done", tools=[AgentTool(_sequence("inner"))])


def _workflow() -> Root:
    async def first(node_input: Any) -> dict[str, int]:
        del node_input
        effect("first")
        return {"a": 1}

    async def second(ctx: Context, node_input: Any) -> str:
        effect("second")
        ctx.state["wf"] = 2
        return f"{node_input} and 2"

    def last(node_input: Any) -> str:
        del node_input
        effect("last")
        return "fin"

    for node in (first, second, last):
        node.idempotent = True  # pyright: ignore[reportFunctionMemberAccess]
    node = agent("ag", [("t1", {"k": "w"})], "ag done", tools=[tool("t1")], output_key="oag")
    return Workflow(name="root", edges=[(START, first, second, node, last)])


def _workflow_fan() -> Root:
    async def begin(node_input: Any) -> str:
        del node_input
        effect("begin")
        return "one"

    async def left(node_input: Any) -> str:
        del node_input
        await asyncio.sleep(0.002)
        effect("left")
        return "left"

    async def right(node_input: Any) -> str:
        del node_input
        await asyncio.sleep(0.004)
        effect("right")
        return "right"

    def end(node_input: Any) -> str:
        del node_input
        effect("end")
        return "fin"

    for node in (begin, left, right, end):
        node.idempotent = True  # pyright: ignore[reportFunctionMemberAccess]
    node = agent("ag", "ag done", output_key="oag")
    join = JoinNode(name="join")
    side_by_side = (left, right, node)
    edges: Any = [(START, begin), (begin, side_by_side), (side_by_side, join), (join, end)]
    return Workflow(name="root", edges=edges)


def _confirmation() -> Root:
    tools = [
        tool("t1", idempotent=True),
        tool("pay", state="paid", require_confirmation=True),
    ]
    return agent("root", [("t1", {"k": "a"}), ("pay", {"k": "b"})], "paid", tools=tools)


def _long_running() -> Root:
    async def ask(k: str) -> None:
        """Ask a person outside this process."""
        effect(f"ask {k}")

    steps = ([("t1", {"k": "a"})], [("ask", {"k": "b"})], "got it")
    return agent("root", *steps, tools=[tool("t1"), LongRunningFunctionTool(ask)])


def _compaction() -> Root:
    summary = ModelAdapter(ScriptedProvider(rule=lambda _: Answer("SUMMARY")), "demo")
    return App(
        name="app",
        root_agent=agent("root", [("t1", {"k": "a"})], "done", tools=[tool("t1")]),
        events_compaction_config=EventsCompactionConfig(
            summarizer=LlmEventSummarizer(llm=summary), compaction_interval=1, overlap_size=0
        ),
    )


def _artifacts() -> Root:
    tools = [tool("t1", idempotent=True, state="s1", artifact=True)]
    return agent("root", [("t1", {"k": "a"})], "done", tools=tools)


_ASKED: Final = (f"{TURN} one", HumanReply(True))
_TWICE: Final = (f"{TURN} one", f"{TURN} two")

SHAPES: Final[dict[str, KillShape]] = {
    "tools": _single(idempotent=True),
    "tools that run once": _single(idempotent=False),
    "parallel tools": KillShape(_parallel_tools, side_by_side=True),
    "transfer and back": KillShape(_transfer_and_back),
    "transfer and stay": KillShape(_transfer_and_stay, _TWICE),
    "sequence": KillShape(_sequence),
    "parallel": KillShape(_parallel, side_by_side=True),
    "loop": KillShape(_loop),
    "agent as tool": KillShape(_agent_tool),
    "sequence as tool": KillShape(_sequence_as_tool),
    "workflow": KillShape(_workflow, side_by_side=True),
    "workflow side by side": KillShape(_workflow_fan, side_by_side=True),
    "confirmation": KillShape(_confirmation, _ASKED),
    "long-running": KillShape(
        _long_running, (f"{TURN} one", HumanReply(payload={"answer": "yes"}))
    ),
    "compaction": KillShape(_compaction, _TWICE),
    "artifacts": KillShape(_artifacts),
}
"""All shapes that must recover from every kill."""

SWEEP_SHAPES: Final = dict(SHAPES)
"""All shapes that a sweep can run, by name: other rows add theirs."""

ONCE: Final = ["tools that run once", "parallel tools", "confirmation", "long-running"]
"""The shapes with tools that must not run twice."""


def quiet() -> None:
    """Silence logs of deliberate cuts, and warnings about agents that ADK deprecated."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
