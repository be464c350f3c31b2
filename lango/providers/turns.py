"""A conversation as two sides that take turns, for the wires that insist on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from lango.core.messages import Message

EARLIER: Final = "(What was said before is left out.)"
"""Said by the user when what is left of a conversation begins with an answer."""
GO_ON: Final = "Go on."
"""Said by the user when the conversation ends with an answer, or is empty."""

Side = Literal["user", "assistant"]


@dataclass(slots=True)
class Turn:
    """What one side says at once."""

    side: Side
    messages: list[Message] = field(default_factory=list[Message])


def take_turns(messages: Iterable[Message]) -> list[Turn]:
    """The conversation, user first, user last, never one side twice in a row.

    The instruction is not part of it; messages that say nothing are left out.
    """
    turns: list[Turn] = []
    for message in messages:
        if not (message.content.strip() or message.tool_calls or message.media):
            continue
        side: Side = "assistant" if message.is_assistant else "user"
        if not turns or turns[-1].side != side:
            turns.append(Turn(side))
        turns[-1].messages.append(message)
    if turns and turns[0].side == "assistant":
        turns.insert(0, Turn("user", [Message("user", EARLIER)]))
    if not turns or turns[-1].side == "assistant":
        turns.append(Turn("user", [Message("user", GO_ON)]))
    return turns


def without_instruction(messages: Iterable[Message]) -> tuple[str, list[Message]]:
    """The instruction (the leading system messages), and the rest."""
    rest = list(messages)
    instruction: list[str] = []
    while rest and rest[0].role == "system":
        instruction.append(rest.pop(0).content)
    return "\n\n".join(filter(None, instruction)), rest
