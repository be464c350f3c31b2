"""Workflows of SHAPES: functions that are retried, that choose a route, and that repeat."""

from __future__ import annotations

from typing import Any, Final

from google.adk.agents.context import Context
from google.adk.workflow import START, FunctionNode, RetryConfig, Workflow
from google.genai import types

from faults.recovery.kill_shapes import KillShape, agent
from lango.adk.apps.load import Root
from lango.testing.kill_trials import effect

_SOON: Final = {"initial_delay": 0.001, "jitter": 0.0}


class LineDown(ConnectionError):
    """What a function raises in a try that fails."""


def _idempotent(function: Any) -> Any:
    function.idempotent = True
    return function


def _flaky(name: str, fails: int, *, gives: str | None) -> FunctionNode:
    """A function whose first tries fail; every try changes the state and saves an artifact."""

    async def run(ctx: Context, node_input: Any) -> str | None:
        del node_input
        effect(f"{name} {ctx.attempt_count}")
        ctx.state[f"{name}_tries"] = ctx.state.get(f"{name}_tries", 0) + 1
        await ctx.save_artifact(f"{name}.txt", types.Part(text=str(ctx.attempt_count)))
        if ctx.attempt_count <= fails:
            raise LineDown(f"try {ctx.attempt_count}")
        return gives

    tries = RetryConfig(max_attempts=3, exceptions=["ConnectionError"], **_SOON)
    return FunctionNode(func=_idempotent(run), name=name, retry_config=tries)


def _last() -> Any:
    async def last(node_input: Any) -> str:
        effect("last")
        return f"fin after {node_input}"

    return _idempotent(last)


def _retry() -> Root:
    nodes = (_flaky("flaky", 2, gives="ok"), _flaky("silent", 1, gives=None))
    return Workflow(name="root", edges=[(START, *nodes, _last())])


def _retry_in_vain() -> Root:
    return Workflow(name="root", edges=[(START, _flaky("flaky", 3, gives="never"), _last())])


def _routes() -> Root:
    async def counts(ctx: Context, node_input: Any) -> None:
        del node_input
        effect("counts")
        ctx.state["n"] = ctx.state.get("n", 0) + 1

    async def only_routes(ctx: Context, node_input: Any) -> None:
        del node_input
        effect("only routes")
        ctx.route = "right" if ctx.state["n"] == 1 else "wrong"

    async def sets_output(ctx: Context, node_input: Any) -> None:
        del node_input
        effect("sets output")
        ctx.state["n"] = ctx.state["n"] + 1
        ctx.output = f"n is {ctx.state['n']}"
        ctx.route = ["on"]

    async def never(node_input: Any) -> str:
        del node_input
        effect("never")
        return "wrong"

    for function in (counts, only_routes, sets_output, never):
        _idempotent(function)
    spoken = agent("ag", "said")
    edges: Any = [
        (START, counts, only_routes),
        (only_routes, {"right": sets_output, "wrong": never}),
        (sets_output, {"on": spoken, "off": never}),
        (spoken, _last()),
    ]
    return Workflow(name="root", edges=edges)


def _cycle() -> Root:
    async def step(ctx: Context, node_input: Any) -> str:
        del node_input
        rounds = ctx.state.get("n", 0) + 1
        effect(f"step {rounds}")
        ctx.state["n"] = rounds
        ctx.route = "again" if rounds < 3 else "stop"
        return f"round {rounds}"

    _idempotent(step)
    edges: Any = [(START, step), (step, {"again": step, "stop": _last()})]
    return Workflow(name="root", edges=edges)


NODE_SHAPES: Final[dict[str, KillShape]] = {
    "node retry": KillShape(_retry, side_by_side=True),
    "node retry in vain": KillShape(_retry_in_vain, side_by_side=True),
    "routes": KillShape(_routes, side_by_side=True),
    "cycle": KillShape(_cycle, side_by_side=True),
}
"""The shapes of functions in a Workflow, by name."""
