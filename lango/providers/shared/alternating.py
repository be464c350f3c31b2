"""A conversation with strictly alternating sides, for the APIs that require it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from lango.core.messages.messages import Message

EARLIER: Final = "(Earlier messages are left out.)"
"""The user's text inserted before a truncated conversation that starts with an answer."""
GO_ON: Final = "Go on."
"""The user's text appended when the conversation ends with an answer or is empty."""

Side = Literal["user", "assistant"]


@dataclass(slots=True)
class SideMessages:
    """Consecutive messages of one side."""

    side: Side
    messages: list[Message] = field(default_factory=list[Message])


def take_turns(messages: Iterable[Message]) -> list[SideMessages]:
    """The conversation as alternating turns, with the user first and last.

    Pass it without the instruction. Empty messages are left out.
    """
    turns: list[SideMessages] = []
    for message in messages:
        if not (message.content.strip() or message.tool_calls or message.media):
            continue
        side: Side = "assistant" if message.is_assistant else "user"
        if not turns or turns[-1].side != side:
            turns.append(SideMessages(side))
        turns[-1].messages.append(message)
    if turns and turns[0].side == "assistant":
        turns.insert(0, SideMessages("user", [Message("user", EARLIER)]))
    if not turns or turns[-1].side == "assistant":
        turns.append(SideMessages("user", [Message("user", GO_ON)]))
    return turns


def without_instruction(messages: Iterable[Message]) -> tuple[str, list[Message]]:
    """The instruction (the leading system messages), and the rest."""
    conversation = list(messages)
    instruction: list[str] = []
    while conversation and conversation[0].role == "system":
        instruction.append(conversation.pop(0).content)
    return "\n\n".join(filter(None, instruction)), conversation
