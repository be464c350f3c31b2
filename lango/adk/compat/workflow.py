"""How ADK runs the nodes of a Workflow: functions, their output, and agents' input."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, Protocol

from google.adk.agents.context import Context
from google.adk.agents.llm_agent import LlmAgent
from google.adk.events.event import Event
from google.adk.workflow import FunctionNode, _llm_agent_wrapper
from google.adk.workflow._errors import DynamicNodeFailError

__all__ = [
    "DynamicNodeFailError",
    "PrepareInput",
    "RunFunction",
    "check_output",
    "clear_output",
    "function_of",
    "pending_output",
    "prepare_input",
    "replace_prepare_input",
    "replace_run_function",
    "run_function",
]


class RunFunction(Protocol):
    """Runs the function of a node."""

    def __call__(
        self, node: FunctionNode, /, *, ctx: Context, node_input: Any
    ) -> AsyncGenerator[Any, None]:
        """Yield the items that the function makes."""
        ...


PrepareInput = Callable[[LlmAgent, Context, Any], Event | None]
"""Prepares an agent's input, and appends it to the session's events."""

run_function: Final[RunFunction] = FunctionNode._run_impl
"""ADK's own method."""
prepare_input: Final[PrepareInput] = _llm_agent_wrapper.prepare_llm_agent_input
"""ADK's own function."""


def replace_run_function(replacement: RunFunction) -> None:
    """Patch ADK's method (idempotent)."""
    FunctionNode._run_impl = replacement  # pyright: ignore[reportAttributeAccessIssue]


def replace_prepare_input(replacement: PrepareInput) -> None:
    """Patch ADK's function (idempotent)."""
    _llm_agent_wrapper.prepare_llm_agent_input = replacement


def function_of(node: FunctionNode) -> Any:
    """The function that a node runs."""
    return node._func


def check_output(node: FunctionNode, output: Any) -> None:
    """Raise an error if an output does not fit the node's schema."""
    node._validate_output_data(output)


def pending_output(ctx: Context) -> Any:
    """The output that a node set on its context, for which ADK has not written an event."""
    return None if ctx._output_delegated else ctx.output


def clear_output(ctx: Context) -> None:
    """Remove the output from a node's context: ADK takes it from an event instead."""
    ctx._output_value = None
