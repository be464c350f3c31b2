"""The agents of SHAPES: questions in every container, callbacks of agents, nested containers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    LoopAgent,  # pyright: ignore[reportDeprecated]  # people have them
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.callback_context import CallbackContext
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from faults.recovery.kill_shapes import TURN, KillShape, agent, tool
from faults.recovery.node_shapes import NODE_SHAPES
from lango.adk.apps.load import Root
from lango.providers.base import ModelRequest
from lango.testing.kill_trials import HumanReply, effect

Contain = Callable[[BaseAgent], Root]
"""Puts the tested agent into a container."""

_ASKED: Final = (f"{TURN} one", HumanReply(True))
_REFUSED: Final = (f"{TURN} one", HumanReply(False))
_TOLD: Final = (f"{TURN} one", HumanReply(payload={"answer": "yes"}))


def _sequence(*agents: BaseAgent, name: str = "root", **options: Any) -> BaseAgent:
    return SequentialAgent(name=name, sub_agents=list(agents), **options)  # pyright: ignore[reportDeprecated]


def _loop(*agents: BaseAgent, name: str = "root", rounds: int = 2) -> BaseAgent:
    return LoopAgent(name=name, max_iterations=rounds, sub_agents=list(agents))  # pyright: ignore[reportDeprecated]


def _parallel(*agents: BaseAgent, name: str = "root", **options: Any) -> BaseAgent:
    return ParallelAgent(name=name, sub_agents=list(agents), **options)  # pyright: ignore[reportDeprecated]


def _calls(name: str, tool_name: str, text: str, **options: Any) -> LlmAgent:
    """An agent that calls one tool, and then says something."""
    return agent(name, [(tool_name, {"k": name})], text, **options)


def _works(name: str, *, once: bool = True) -> LlmAgent:
    return _calls(name, f"t_{name}", name.upper(), tools=[tool(f"t_{name}", idempotent=not once)])


def _transfers_to(sub: BaseAgent) -> LlmAgent:
    step = [("transfer_to_agent", {"agent_name": sub.name})]
    return agent("root", step, "root end", sub_agents=[sub])


_CONTAINERS: Final[dict[str, Contain]] = {
    "sequence": lambda tried: _sequence(_works("z"), tried, agent("b", "B")),
    "loop": lambda tried: _loop(tried, agent("b", "B")),
    "parallel": lambda tried: _parallel(tried, agent("b", "B")),
    "sub-agent": _transfers_to,
    "sequence in sequence": lambda tried: _sequence(
        _sequence(agent("z", "Z"), tried, name="inner"), agent("b", "B")
    ),
    "parallel in sequence": lambda tried: _sequence(
        _parallel(tried, agent("y", "Y"), name="inner"), agent("b", "B")
    ),
    "sequence in parallel": lambda tried: _parallel(
        _sequence(tried, agent("z", "Z"), name="inner"), agent("b", "B")
    ),
}


def _once_called(request: ModelRequest, call: Any) -> Any:
    """The call in the first round of a loop, a text in later ones."""
    begun = any(message.is_assistant for message in request.messages)
    return "done" if begun else call


def _confirms(contain: Contain) -> Callable[[], Root]:
    def make() -> Root:
        pay = tool("pay", state="paid", require_confirmation=True)
        call = [("pay", {"k": "a"})]
        return contain(agent("a", lambda request: _once_called(request, call), "A", tools=[pay]))

    return make


def _asks(contain: Contain, *, pending: bool = False) -> Callable[[], Root]:
    """A long-running call, whose tool returns None or a pending value."""

    def make() -> Root:
        async def ask(k: str) -> dict[str, str] | None:
            """Ask a person elsewhere."""
            effect(f"ask {k}")
            return {"status": "pending"} if pending else None

        call = [("ask", {"k": "a"})]
        tools = [LongRunningFunctionTool(ask)]
        return contain(agent("a", lambda request: _once_called(request, call), "A", tools=tools))

    return make


def _works_on() -> Root:
    """An agent that calls another tool while a result is pending, and must not repeat that."""

    async def ask(k: str) -> dict[str, str]:
        """Ask a person elsewhere."""
        effect(f"ask {k}")
        return {"status": "pending"}

    steps = ([("ask", {"k": "a"})], [("pay", {"k": "b"})], "done")
    return agent("root", *steps, tools=[LongRunningFunctionTool(ask), tool("pay")])


def _counts(key: str) -> Callable[[CallbackContext], None]:
    def count(callback_context: CallbackContext) -> None:
        callback_context.state[key] = callback_context.state.get(key, 0) + 1

    return count


def _says(text: str) -> Callable[[CallbackContext], types.Content]:
    def say(callback_context: CallbackContext) -> types.Content:
        del callback_context
        return types.Content(role="model", parts=[types.Part(text=text)])

    return say


def _saves(name: str) -> Any:
    async def save(callback_context: CallbackContext) -> None:
        await callback_context.save_artifact(name, types.Part(text="x"))

    return save


def _with_callbacks(name: str, once: bool = True, **options: Any) -> LlmAgent:
    tools = [tool(f"t_{name}", idempotent=not once)]
    callbacks = {
        "before_agent_callback": [_saves(f"{name}-before.txt"), _counts(f"{name}_before")],
        "after_agent_callback": [_saves(f"{name}-after.txt"), _counts(f"{name}_after")],
    }
    return _calls(name, f"t_{name}", name.upper(), tools=tools, **callbacks, **options)


def _temporary_state() -> Root:
    """Temporary state that a callback sets and the instruction needs."""

    def set_up(callback_context: CallbackContext) -> None:
        callback_context.state["temp:who"] = "the owner"

    return _calls(
        "root",
        "t1",
        "done",
        tools=[tool("t1")],
        before_agent_callback=set_up,
        instruction="You talk with {temp:who}.",
    )


def _callbacks_of_containers() -> Root:
    inner = _parallel(
        _works("a"),
        agent("y", "Y"),
        name="inner",
        before_agent_callback=_counts("inner_before"),
        after_agent_callback=_counts("inner_after"),
    )
    return _sequence(
        inner,
        agent("b", "B"),
        before_agent_callback=_counts("root_before"),
        after_agent_callback=[_counts("root_after"), _says("goodbye")],
    )


def _callbacks_and_transfer() -> Root:
    step = [("transfer_to_agent", {"agent_name": "sub"})]
    sub = _with_callbacks("sub")
    return agent(
        "root",
        step,
        "root end",
        sub_agents=[sub],
        before_agent_callback=_counts("root_before"),
        after_agent_callback=_counts("root_after"),
    )


def _callbacks_beside_a_sub_agent() -> Root:
    return _with_callbacks("root", sub_agents=[agent("sub", "never")])


def _skips_summary() -> Root:
    async def only(k: str, tool_context: ToolContext) -> dict[str, str]:
        """Give the answer itself."""
        effect(f"only {k}")
        tool_context.actions.skip_summarization = True
        return {"final": k}

    only.idempotent = True  # pyright: ignore[reportFunctionMemberAccess]
    return agent("root", [("only", {"k": "a"})], "never", tools=[FunctionTool(only)])


def _agent_tool_skips_summary() -> Root:
    helper = agent("helper", "helper says")
    ask = [("helper", {"request": f"{TURN} inner"})]
    return agent("root", ask, "never", tools=[AgentTool(helper, skip_summarization=True)])


def _callbacks_in_agent_tool() -> Root:
    ask = [("helper", {"request": f"{TURN} inner"})]
    return agent("root", ask, "done", tools=[AgentTool(_with_callbacks("helper"))])


def _of_containers() -> dict[str, KillShape]:
    shapes: dict[str, KillShape] = {}
    for name, contain in _CONTAINERS.items():
        beside = "parallel" in name
        shapes[f"confirmation in {name}"] = KillShape(
            _confirms(contain), _ASKED, side_by_side=beside
        )
        shapes[f"long-running in {name}"] = KillShape(_asks(contain), _TOLD, side_by_side=beside)
    return shapes


SHAPES: Final[dict[str, KillShape]] = {
    **_of_containers(),
    **NODE_SHAPES,
    "confirmation refused in sequence": KillShape(_confirms(_CONTAINERS["sequence"]), _REFUSED),
    "pending value": KillShape(_asks(lambda tried: tried, pending=True), _TOLD),
    "tool after a pending value": KillShape(_works_on, _TOLD),
    "pending value in sequence": KillShape(_asks(_CONTAINERS["sequence"], pending=True), _TOLD),
    "agent callbacks": KillShape(lambda: _with_callbacks("root")),
    "after callback that speaks": KillShape(
        lambda: _calls("root", "t1", "A", tools=[tool("t1")], after_agent_callback=_says("PS"))
    ),
    "before callback that answers": KillShape(
        lambda: _sequence(agent("a", "never", before_agent_callback=_says("no")), _works("b"))
    ),
    "temporary state": KillShape(_temporary_state),
    "callbacks in sequence": KillShape(
        lambda: _sequence(_with_callbacks("a"), _with_callbacks("b"))
    ),
    "callbacks in loop": KillShape(lambda: _loop(_with_callbacks("a", once=False))),
    "callbacks in parallel": KillShape(
        lambda: _parallel(_with_callbacks("a"), _with_callbacks("b")), side_by_side=True
    ),
    "callbacks of containers": KillShape(_callbacks_of_containers, side_by_side=True),
    "callbacks and transfer": KillShape(_callbacks_and_transfer),
    "callbacks beside a sub-agent": KillShape(_callbacks_beside_a_sub_agent),
    "callbacks in agent as tool": KillShape(_callbacks_in_agent_tool),
    "skip_summarization": KillShape(_skips_summary),
    "agent as tool with skip_summarization": KillShape(_agent_tool_skips_summary),
    "sequence in sequence": KillShape(
        lambda: _sequence(_sequence(_works("a"), _works("d"), name="inner"), agent("b", "B"))
    ),
    "loop in sequence": KillShape(
        lambda: _sequence(agent("z", "Z"), _loop(_works("a"), name="inner"), agent("b", "B"))
    ),
    "parallel in sequence": KillShape(
        lambda: _sequence(_parallel(_works("a"), agent("y", "Y"), name="inner"), agent("b", "B")),
        side_by_side=True,
    ),
    "sequence in parallel": KillShape(
        lambda: _parallel(_sequence(_works("a"), agent("y", "Y"), name="inner"), agent("b", "B")),
        side_by_side=True,
    ),
    "sequence in loop": KillShape(
        lambda: _loop(_sequence(_works("a", once=False), agent("y", "Y"), name="inner"))
    ),
    "parallel in loop": KillShape(
        lambda: _loop(_parallel(_works("a", once=False), agent("y", "Y"), name="inner")),
        side_by_side=True,
    ),
    "loop in loop": KillShape(lambda: _loop(_loop(_works("a", once=False), name="inner"))),
}
"""Every shape that SHAPES kills and freezes at its failpoints, by name."""
