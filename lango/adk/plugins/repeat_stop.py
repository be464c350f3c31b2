"""Warns a model that repeats the same tool call, then ends the turn."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from lango.adk.models.caller import note_caller, note_tool
from lango.adk.plugins.stopping import StopResponse
from lango.adk.plugins.turns import TurnPlugin
from lango.core.values import storable_json
from lango.errors import RepeatedCallError


@dataclass(slots=True)
class _Streak:
    """The last call of an agent, and how often it was made in a row."""

    call: str = ""
    times: int = 0


@dataclass(slots=True)
class _Turn:
    streaks: dict[tuple[str, str | None], _Streak] = field(
        default_factory=dict[tuple[str, str | None], _Streak]
    )
    error: RepeatedCallError | None = None


class RepeatStopPlugin(TurnPlugin[_Turn]):
    """Runs the same call (name and arguments) at most `limit` times in a row, in one turn.

    The next such call gets an error as its response. One more, and the turn ends with
    RepeatedCallError before the model is called again.
    """

    def __init__(self, limit: int = 3, name: str = "lango_repeat_stop") -> None:
        super().__init__(name, _Turn)
        if limit < 1:
            raise ValueError(f"A call must be allowed once at least, not {limit} times.")
        self.limit = limit

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Refuse a call that repeats too often."""
        turn = self.turns[note_tool(tool_context)]
        agent_branch = (tool_context.agent_name, tool_context.branch)
        streak = turn.streaks.setdefault(agent_branch, _Streak())
        times = _times(streak, tool.name, tool_args)
        if times <= self.limit:
            return None
        feedback = (
            f"{tool.name} was called {self.limit} times in a row with the same arguments; it is not"
            " run again. Use what it returned, call it with other arguments, or answer."
        )
        if times > self.limit + 1:
            turn.error = RepeatedCallError(
                f"{tool.name} was called {times} times in a row with the same arguments, also "
                "after the model was asked to stop.",
                tool=tool.name,
            )
        return {"error": feedback}

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """End the turn if a call repeated too often: at this point every call has a response."""
        error = self.turns[note_caller(callback_context, llm_request).turn].error
        return StopResponse(error) if error else None


def _times(streak: _Streak, name: str, arguments: dict[str, Any]) -> int:
    """How often in a row this call was made, this one included."""
    call = json.dumps([name, storable_json(arguments)], sort_keys=True)
    if call != streak.call:
        streak.call, streak.times = call, 0
    streak.times += 1
    return streak.times
