"""What a request may hold, and making a conversation fit into it.

Older messages are left out first, from the oldest on; a tool output too long for its place is
shortened. The open turn, from the user's last message on, is never cut. Messages of earlier turns
are history, also those of turns that failed before an answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lango.core.history import effective_budget, token_budget_truncate
from lango.core.messages import Message
from lango.core.model_calls import CutReason
from lango.core.tokens import binary_tokens, message_tokens, text_weight, tokens_of_weight
from lango.core.values import json_text
from lango.errors import ContextTooLongError

ANSWER_ROOM: Final = 8_192
"""Tokens kept free for the answer, and asked for where an API wants a number, if none is set."""

FALL: Final = 0.3
LOWEST: Final = 0.5
HIGHEST: Final = 2.0
MARGIN: Final = 0.05
FIRST_MARGIN: Final = 0.15
"""Before the first report, where the limit is the model's own."""

OTHER_AGENT: Final = "For context: below is a transcript of what another agent did"
"""How a user message begins by which ADK tells an agent what another one said or did."""

_OPAQUE_PER_TOKEN: Final = 5
_SHARE: Final = 4
"""One output of an older turn may fill this part of the room, when there is not room for all."""


def request_tokens(message: Message) -> int:
    """The estimate of a message with all that a request shows of it: media and reasoning too."""
    tokens = message_tokens(message)
    for media in message.media:
        tokens += binary_tokens(media.mime_type, media.data)
    for thought in message.reasoning:
        # Data without a text is thoughts enciphered: counted by its length, not by its letters.
        words = tokens_of_weight(text_weight(thought.text)) if thought.text else 0
        tokens += words or len(thought.opaque) // _OPAQUE_PER_TOKEN
    return tokens


@dataclass(frozen=True, slots=True)
class Calibration:
    """How far the estimate is off for one model in one session, as its provider counts tokens."""

    ratio: float | None = None
    sent: frozenset[int] = frozenset()
    """The messages of the last request, by hash."""

    def after(self, messages: Sequence[Message], *, estimated: int, reported: int) -> Calibration:
        """What a report of the whole prompt's tokens teaches; it rises at once and falls slowly."""
        if estimated <= 0 or reported <= 0:
            return self
        new = min(max(reported / estimated, LOWEST), HIGHEST)
        old = self.ratio
        if old is not None and new < old:
            new = old + FALL * (new - old)
        return Calibration(new, frozenset(map(hash, messages)))

    def tokens(self, message: Message) -> int:
        """The tokens to expect of a message; one never sent is not believed to be cheap."""
        ratio = self.ratio or 1.0
        if ratio < 1.0 and hash(message) not in self.sent:
            ratio = 1.0
        return math.ceil(request_tokens(message) * ratio)

    def unsent(self, estimated: int) -> int:
        """The tokens to expect of anything else."""
        return math.ceil(estimated * max(self.ratio or 1.0, 1.0))


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a request; everything in tokens."""

    budget: int | None = 0  # for the messages; 0: the default, None: as much as the model takes
    window: int | None = None  # of the model; None: unknown
    overhead: int = 0  # system text and tool declarations
    answer: int | None = None  # the most that may be said in return

    def room(self, calibration: Calibration) -> int | None:
        """The room for messages: the smaller of the budget and what the window leaves."""
        rooms = self._rooms(calibration).values()
        return max(0, math.floor(min(rooms))) if rooms else None

    def bound(self, calibration: Calibration) -> CutReason:
        """Which of the two it is."""
        rooms = self._rooms(calibration)
        return min(rooms, key=lambda name: rooms[name]) if rooms else ""

    def _rooms(self, calibration: Calibration) -> dict[CutReason, float]:
        rooms: dict[CutReason, float] = {}
        if self.budget is not None:
            margin = MARGIN if calibration.ratio is not None else 0.0
            rooms["budget"] = effective_budget(self.budget) * (1 - margin)
        if self.window is not None:
            margin = MARGIN if calibration.ratio is not None else FIRST_MARGIN
            answer = self.answer or min(ANSWER_ROOM, self.window // 4)
            overhead = calibration.unsent(self.overhead)
            rooms["window"] = self.window * (1 - margin) - overhead - answer
        return rooms


@dataclass(frozen=True, slots=True)
class Fitted:
    """A conversation that fits."""

    messages: list[Message]
    tokens: int
    left_out: int = 0
    shortened: tuple[str, ...] = ()  # ids of the calls whose outputs were


def open_turn(messages: Sequence[Message]) -> int:
    """Where the open turn begins if only the messages tell: at the user's last one.

    What other agents said reaches a model as user messages too, after the user's own.
    """
    users = [place for place, message in enumerate(messages) if message.role == "user"]
    own = [place for place in users if not is_quote(messages[place])]
    return (own or users or [0])[-1]


def is_quote(message: Message) -> bool:
    """Whether a user message is what another agent said or did."""
    return message.content.startswith(OTHER_AGENT)


def fit(
    messages: Sequence[Message],
    room: int | None,
    calibration: Calibration | None = None,
    opens: Callable[[Sequence[Message]], int] = open_turn,
) -> Fitted:
    """The newest messages that fit the room, the open turn whole; the results stand by their calls.

    `opens` finds the place where the open turn begins. Raises ContextTooLongError when the open
    turn alone is over the room with its outputs shortened.
    """
    tokens = (calibration or Calibration()).tokens
    total = sum(map(tokens, messages))
    if room is None or total <= room:
        return Fitted(list(messages), total)
    start = opens(messages)
    turn = _shortened(messages[start:], room, tokens)
    needed = sum(map(tokens, turn))
    if needed > room:
        raise ContextTooLongError(
            f"The open turn alone has about {needed} tokens, and there is room for {room}."
        )
    older = [_shorter(message, room // _SHARE, tokens) for message in messages[:start]]
    left = room - needed
    kept = token_budget_truncate(older, left, tokens=tokens) if left > 0 else []
    fitted = [*kept, *turn]
    before = messages[len(messages) - len(fitted) :]
    return Fitted(
        fitted,
        needed + sum(map(tokens, kept)),
        left_out=start - len(kept),
        shortened=_changed(before, fitted),
    )


def _changed(before: Sequence[Message], after: Sequence[Message]) -> tuple[str, ...]:
    pairs = zip(before, after, strict=True)
    return tuple(call.id for old, new in pairs if new is not old for call in new.tool_calls)


Tokens = Callable[[Message], int]


def _shortened(messages: Sequence[Message], room: int, tokens: Tokens) -> list[Message]:
    """Outputs cut down to one height, as high as lets the messages fit."""
    floors = [min(tokens(message), tokens(_with_ends(message, 0))) for message in messages]
    wants = [tokens(message) - floor for message, floor in zip(messages, floors, strict=True)]
    height = _water_level(sorted(filter(None, wants)), room - sum(floors))
    return [
        _shorter(message, floor + height, tokens)
        for message, floor in zip(messages, floors, strict=True)
    ]


def _water_level(wants: Sequence[int], spare: int) -> int:
    """The height at which what is wanted, each cut off there, comes to no more than is spare."""
    for number, want in enumerate(wants):
        share = max(spare, 0) // (len(wants) - number)
        if want > share:
            return share
        spare -= want
    return max(wants, default=0)


def _shorter(message: Message, cap: int, tokens: Tokens) -> Message:
    """A tool message over the cap with as much of its outputs, from both ends, as it allows."""
    if not message.is_tool or tokens(message) <= cap:
        return message
    low, high = 0, max((len(call.output) for call in message.tool_calls), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if tokens(_with_ends(message, middle)) <= cap:
            low = middle
        else:
            high = middle - 1
    shorter = _with_ends(message, low)
    return shorter if tokens(shorter) < tokens(message) else message


def _with_ends(message: Message, length: int) -> Message:
    if not message.is_tool:
        return message
    calls = tuple(replace(call, output=_ends(call.output, length)) for call in message.tool_calls)
    content = "\n".join(call.output for call in calls)
    return replace(message, content=content, tool_calls=calls)


def _ends(text: str, length: int) -> str:
    """A JSON object with the first two thirds and the last third of so many characters."""
    if len(text) <= length:
        return text
    tail = length // 3
    return json_text(
        {
            "truncated": True,
            "characters": len(text),
            "head": text[: length - tail],
            "tail": text[len(text) - tail :],
        }
    )
