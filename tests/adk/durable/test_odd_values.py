"""Values in state and in outputs that JSON does not know: a killed worker changes none of them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from google.adk.agents.context import Context
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, Workflow

from faults.recovery.kill_shapes import agent
from lango.adk.apps.load import Root
from lango.testing.kill_trials import Sweep
from tests.adk.durable.dying import cut_off, new_key, resumed, undisturbed

VALUES: Final[dict[str, Any]] = {
    "bytes that are no text": b"\xff\x00",
    "bytes that are text": b"abc",
    "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "duration": timedelta(seconds=90),
    "set": {"b", "a"},
}


def _as_tool(value: Any) -> Root:
    async def odd(tool_context: ToolContext) -> dict[str, str]:
        """Keep a value."""
        tool_context.state["odd"] = value
        return {"kept": "yes"}

    return agent("root", [("odd", {})], "done", tools=[FunctionTool(odd)])


def _as_node(value: Any) -> Root:
    async def odd(ctx: Context, node_input: Any) -> Any:
        del node_input
        ctx.state["odd"] = value
        return {"given": value}

    return Workflow(name="root", edges=[(START, odd)])


@pytest.mark.parametrize("make", [_as_tool, _as_node])
@pytest.mark.parametrize("kind", VALUES)
async def test_it_is_kept_alike_with_and_without_a_kill(
    make: Callable[[Any], Root], kind: str, sqlite_url: str
) -> None:
    sweep, key = Sweep(lambda: make(VALUES[kind]), ["TURN one"], sqlite_url), new_key()
    clean = await undisturbed(sweep)
    assert clean.turns == ("completed",)
    dead = await cut_off(sweep, key, "ledger.finish.after")
    after = await resumed(sweep, key, dead)
    assert (after.turns, after.history, after.state) == (clean.turns, clean.history, clean.state)
