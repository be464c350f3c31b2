"""Token-budget history: the newest messages that fit, never separating a call and its response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from lango.core.context.tokens import message_tokens
from lango.core.messages.messages import Message

DEFAULT_TOKEN_BUDGET: Final = 32_000

M = TypeVar("M", bound=Message)


def effective_budget(budget: int) -> int:
    """The budget, or the default for 0 (not set)."""
    return budget if budget > 0 else DEFAULT_TOKEN_BUDGET


def token_budget_truncate(
    messages: Sequence[M], budget: int = 0, *, tokens: Callable[[M], int] = message_tokens
) -> list[M]:
    """The newest messages whose tokens fit the budget, starting where a conversation may start."""
    remaining = effective_budget(budget)
    start = len(messages)
    while start > 0:
        remaining -= tokens(messages[start - 1])
        if remaining < 0:
            break
        start -= 1
    if start == 0:
        return list(messages)
    return list(messages[start + unsafe_head(messages[start:]) :])


def unsafe_head(messages: Sequence[Message]) -> int:
    """The number of leading messages to drop: orphan tool messages and unanswered calls.

    Only for a truncated history. In a whole one an unanswered call is pending, not orphaned.
    """
    start = 0
    while start < len(messages):
        message = messages[start]
        orphan_response = message.is_tool
        orphan_call = message.is_assistant and not _answered(message, messages, start + 1)
        if not (orphan_response or orphan_call):
            break
        start += 1
    return start


def _answered(message: Message, messages: Sequence[Message], following: int) -> bool:
    """Whether every call of the message has its response somewhere after it.

    Somewhere, not directly after: the events of parallel agents are interleaved.
    """
    unanswered = {call.id for call in message.tool_calls}
    if not unanswered:
        return True
    for index in range(following, len(messages)):
        answer = messages[index]
        if not answer.is_tool:
            continue
        if not answer.tool_calls and index == following:  # a legacy row answers by position
            return True
        unanswered -= {call.id for call in answer.tool_calls}
        if not unanswered:
            return True
    return False
