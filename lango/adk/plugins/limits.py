"""Limits for each turn: model calls, tool calls, tokens, cost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from lango.adk.models.caller import (
    ClaimedTurn,
    ModelCaller,
    call_key,
    claimed_turn,
    note_caller,
    note_tool,
)
from lango.adk.plugins.records import RecordingPlugin
from lango.adk.plugins.stopping import StopResponse
from lango.adk.plugins.turns import TurnPlugin
from lango.core.context.model_calls import ModelCall
from lango.core.messages.streams import Usage
from lango.errors import TurnLimitError
from lango.providers.registry import price

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Used:
    """What a turn has used so far."""

    model_calls: int = 0
    tool_calls: int = 0  # including refused ones
    tokens: int = 0
    cost: float = 0.0
    claim: str = ""  # the claim that is counted
    counted: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Tool calls of earlier attempts, which may repeat: invocation id and call key."""

    @classmethod
    def before(cls, claimed: ClaimedTurn) -> _Used:
        """The usage of earlier attempts.

        An interrupted call counts with its estimated prompt, which had been sent.
        """
        usage = claimed.earlier_usage
        prompts = [price(model, Usage(input=tokens)) or 0.0 for model, tokens in usage.cut_off]
        return cls(
            usage.model_calls,
            len(usage.tools),
            usage.tokens + sum(tokens for _, tokens in usage.cut_off),
            usage.cost + sum(prompts),
            claimed.holding.claim.id,
            set(usage.tools),
        )


class LimitsPlugin(RecordingPlugin, TurnPlugin[_Used]):
    """Ends a turn with TurnLimitError when it reaches a limit.

    Sub-agents, and agents that tools run, count towards their turn. So do all attempts of a
    durable turn, as far as its model calls (ModelCallsPlugin) and tool calls are recorded.
    Tokens and cost (US dollars) are known only after an answer, so the call that exceeds the
    limit is the last one. A tool call over its limit gets an error as its response, and the turn
    ends before the next model call.
    """

    def __init__(
        self,
        *,
        model_calls: int | None = None,
        tool_calls: int | None = None,
        tokens: int | None = None,
        cost: float | None = None,
        name: str = "lango_limits",
    ) -> None:
        super().__init__(name, _Used)
        self.model_calls = model_calls
        self.tool_calls = tool_calls
        self.tokens = tokens
        self.cost = cost
        self._unpriced: set[str] = set()

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """End the turn if a limit is reached, else count the call."""
        totals = self._used(note_caller(callback_context, llm_request).turn)
        error = next(self._reached(totals), None)
        if error is not None:
            return StopResponse(error)
        totals.model_calls += 1
        return await super().before_model_callback(
            callback_context=callback_context, llm_request=llm_request
        )

    def _reached(self, totals: _Used) -> Iterator[TurnLimitError]:
        """The limits that allow no further model call."""
        if self.model_calls is not None and totals.model_calls >= self.model_calls:
            yield _limit_error("model_calls", self.model_calls, totals.model_calls + 1)
        if self.tool_calls is not None and totals.tool_calls > self.tool_calls:
            yield _limit_error("tool_calls", self.tool_calls, totals.tool_calls)
        if self.tokens is not None and totals.tokens >= self.tokens:
            yield _limit_error("tokens", self.tokens, totals.tokens)
        if self.cost is not None and totals.cost >= self.cost:
            yield _limit_error("cost", self.cost, totals.cost)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Count the call, and refuse it if it exceeds the limit."""
        del tool, tool_args
        totals = self._used(note_tool(tool_context))
        call = (tool_context.invocation_id, call_key(tool_context))
        if call in totals.counted:
            totals.counted.remove(call)
            return None
        totals.tool_calls += 1
        if self.tool_calls is None or totals.tool_calls <= self.tool_calls:
            return None
        return {"error": f"Not run: a turn may call tools {self.tool_calls} times."}

    def recorded(self, caller: ModelCaller, record: ModelCall) -> None:
        """Add a call's usage to its turn's usage."""
        usage = record.attempt.usage
        if usage is None:
            return
        totals = self._used(caller.turn)
        totals.tokens += usage.input + usage.output
        totals.cost += record.price or 0.0
        if self.cost is not None and record.price is None:
            self._warn_unpriced(f"{record.attempt.provider}:{record.attempt.model}")

    def _used(self, turn: str) -> _Used:
        """The usage of a turn; for a claimed turn, in all its attempts."""
        claimed = claimed_turn.get()
        if claimed is not None and self.turns[turn].claim != claimed.holding.claim.id:
            self.turns[turn] = _Used.before(claimed)
        return self.turns[turn]

    def _warn_unpriced(self, model: str) -> None:
        if model not in self._unpriced:
            self._unpriced.add(model)
            logger.warning("%s has no known price: its calls count as free.", model)


def _limit_error(limit: str, allowed: float, used: float) -> TurnLimitError:
    figures = (
        f"{used:.4f} of {allowed:.4f} US dollars" if limit == "cost" else f"{used} of {allowed}"
    )
    return TurnLimitError(
        f"The turn reached its limit of {limit.replace('_', ' ')}: {figures}.",
        limit=limit,
        allowed=allowed,
        used=used,
    )
