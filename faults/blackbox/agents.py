"""The agents of a project: eleven shapes. A deploy rewrites this file with the next version."""

# pyright: reportDeprecated=false
# Users have ADK's own containers.

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.context import Context
from google.adk.tools import exit_loop
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, JoinNode, Workflow

import lango

VERSION = "A"
_MODEL: Final = os.environ.get("BLACKBOX_MODEL", "http://127.0.0.1:9/v1")
_LOG: Final = Path(os.environ.get("BLACKBOX_TOOLS", os.devnull))
_descriptor: Final = os.open(_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(tool: str, uid: str, k: str, phase: str) -> None:
    """Add a line to the log that only tools write: `phase` is begin or end."""
    line = {"tool": tool, "uid": uid, "k": k, "phase": phase, "t": time.time(), "pid": os.getpid()}
    os.write(_descriptor, (json.dumps(line) + "\n").encode())


async def count(uid: str, k: str, tool_context: ToolContext) -> dict[str, Any]:
    """Count something that cannot be undone."""
    note("count", uid, k, "begin")
    await asyncio.sleep(0.03)
    note("count", uid, k, "end")
    tool_context.state["counts"] = tool_context.state.get("counts", 0) + 1
    return {"counted": uid + k}


async def put(uid: str, k: str, tool_context: ToolContext) -> dict[str, Any]:
    """Put something; may be repeated."""
    note("put", uid, k, "begin")
    await asyncio.sleep(0.05)
    tool_context.state["puts"] = tool_context.state.get("puts", 0) + 1
    note("put", uid, k, "end")
    return {"put": uid}


@lango.tool
def slow(uid: str, k: str) -> dict[str, Any]:
    """Do something slow, in a thread, that is not idempotent."""
    note("slow", uid, k, "begin")
    time.sleep(0.25)
    note("slow", uid, k, "end")
    return {"slow": uid}


async def pay(uid: str, k: str) -> dict[str, Any]:
    """Pay, when a person has approved it."""
    note("pay", uid, k, "begin")
    await asyncio.sleep(0.1)
    note("pay", uid, k, "end")
    return {"paid": uid}


async def ask(uid: str, k: str) -> None:
    """Ask a person, who answers later."""
    note("ask", uid, k, "begin")
    await asyncio.sleep(0.02)
    note("ask", uid, k, "end")


async def extra(uid: str) -> dict[str, Any]:
    """Do nothing; only the second version has it."""
    return {"extra": uid}


def _repeatable(function: Callable[..., Any]) -> None:
    """Mark a function of ADK's as idempotent, by an attribute."""
    vars(function)["idempotent"] = True


_repeatable(put)
_SLOW: Final = lango.ToolAdapter(slow)


def _agent(name: str, *tools: Any, **more: Any) -> LlmAgent:
    model = lango.ModelAdapter(f"vllm:{name}", base_url=_MODEL, api_key="none")
    new = [] if VERSION in {"A"} else [extra]
    instruction_text = f"You are {name} of version {VERSION}."
    return LlmAgent(
        name=name, model=model, instruction=instruction_text, tools=[*tools, *new], **more
    )


solo = _agent("solo", count, put, _SLOW, output_key="solo_said")
stream = _agent("stream")
seq = SequentialAgent(
    name="seq",
    sub_agents=[
        _agent("seq_a", count, output_key="a_said"),
        _agent("seq_b", output_key="b_said"),
        _agent("seq_c", put),
    ],
)
par = ParallelAgent(
    name="par",
    sub_agents=[
        _agent("par_a", count, output_key="a_said"),
        _agent("par_b", _SLOW, output_key="b_said"),
        _agent("par_c", output_key="c_said"),
    ],
)
loop = LoopAgent(
    name="loop", max_iterations=6, sub_agents=[_agent("loop_a", count), _agent("loop_b", exit_loop)]
)
xfer = _agent("xfer", sub_agents=[_agent("xfer_to", count, put)])
atool = _agent("atool", count, AgentTool(_agent("helper", count, _SLOW, output_key="help")))
appr = _agent("appr", put, count, FunctionTool(pay, require_confirmation=True))
lrun = _agent("lrun", count, LongRunningFunctionTool(ask))


def _text(content: Any) -> str:
    parts = getattr(content, "parts", None)
    return "".join(part.text or "" for part in parts) if parts else str(content)


async def first(node_input: Any) -> str:
    """Pass on the user's message."""
    return _text(node_input)


async def left(ctx: Context, node_input: Any) -> str:
    """Do half of the work."""
    await asyncio.sleep(0.05)
    ctx.state["left"] = len(_text(node_input))
    return "left"


async def right(node_input: Any) -> str:
    """Do the other half."""
    await asyncio.sleep(0.1)
    return f"right of {len(_text(node_input))}"


def last(node_input: Any) -> str:
    """End the work."""
    return f"done with {len(str(node_input)) > 0}"


for each in (first, left, right, last):
    _repeatable(each)

_side: Final = _agent("wf_side")
_join: Final = JoinNode(name="join")
wf = Workflow(
    name="wf",
    edges=[
        (START, first),
        (first, (left, right, _side)),
        ((left, right, _side), _join),
        (_join, last),
    ],
)
line = Workflow(name="line", edges=[(START, first, _agent("line_a", count), last)])
