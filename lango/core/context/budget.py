"""The token limits of a request, and truncation of a conversation to fit them.

The oldest messages are left out first; a tool output over its share is shortened. No message of
the open turn, which starts at the user's last message, is left out. Messages of earlier turns are
history, also those of turns that failed before an answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lango.core.context.model_calls import CutReason
from lango.core.context.tokens import binary_tokens, message_tokens, text_weight, tokens_of_weight
from lango.core.messages.history import effective_budget, token_budget_truncate
from lango.core.messages.messages import Message
from lango.core.values import json_text
from lango.errors import ContextTooLongError

ANSWER_ROOM: Final = 8_192
"""Default answer size: tokens kept free, and sent to APIs that require a maximum."""

FALL: Final = 0.3
LOWEST: Final = 0.5
HIGHEST: Final = 2.0
MARGIN: Final = 0.05
FIRST_MARGIN: Final = 0.15
"""The margin of the model's window before the first usage report."""

OTHER_AGENT: Final = "For context: below is a transcript of what another agent did"
"""The first words of a user message in which ADK quotes another agent."""

_OPAQUE_PER_TOKEN: Final = 5
_SHARE: Final = 4
"""A tool message of an older turn may fill 1/_SHARE of the room, when not everything fits."""


def request_tokens(message: Message) -> int:
    """The estimate of a message as a request contains it: with media and reasoning."""
    tokens = message_tokens(message)
    for media in message.media:
        tokens += binary_tokens(media.mime_type, media.data)
    for thought in message.reasoning:
        # Data without a text is encrypted reasoning: estimated by its length.
        words = tokens_of_weight(text_weight(thought.text)) if thought.text else 0
        tokens += words or len(thought.opaque) // _OPAQUE_PER_TOKEN
    return tokens


@dataclass(frozen=True, slots=True)
class Calibration:
    """The ratio of a provider's token count to the estimate, for one model in one session."""

    ratio: float | None = None
    sent: frozenset[int] = frozenset()
    """The messages of the last request, by hash."""

    def after(self, messages: Sequence[Message], *, estimated: int, reported: int) -> Calibration:
        """Learn from a reported prompt size: the ratio rises immediately and falls slowly."""
        if estimated <= 0 or reported <= 0:
            return self
        new = min(max(reported / estimated, LOWEST), HIGHEST)
        old = self.ratio
        if old is not None and new < old:
            new = old + FALL * (new - old)
        return Calibration(new, frozenset(map(hash, messages)))

    def tokens(self, message: Message) -> int:
        """The tokens to expect of a message; a message never sent gets a ratio of at least 1."""
        ratio = self.ratio or 1.0
        if ratio < 1.0 and hash(message) not in self.sent:
            ratio = 1.0
        return math.ceil(request_tokens(message) * ratio)

    def unsent(self, estimated: int) -> int:
        """The tokens to expect of anything else, with a ratio of at least 1."""
        return math.ceil(estimated * max(self.ratio or 1.0, 1.0))


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a request, in tokens."""

    budget: int | None = 0  # for the messages; 0: the default, None: the model's window only
    window: int | None = None  # of the model; None: unknown
    overhead: int = 0  # system text and tool declarations
    answer: int | None = None  # maximum size of the answer

    def room(self, calibration: Calibration) -> int | None:
        """The room for messages: the smaller of the budget and the free part of the window."""
        rooms = self._rooms(calibration).values()
        return max(0, math.floor(min(rooms))) if rooms else None

    def bound(self, calibration: Calibration) -> CutReason:
        """Which of the two limits applies."""
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


Tokens = Callable[[Message], int]


@dataclass(frozen=True, slots=True)
class FittedConversation:
    """A conversation that fits its limits."""

    messages: list[Message]
    tokens: int
    left_out: int = 0
    shortened: tuple[str, ...] = ()  # ids of the calls whose outputs were shortened
    summaries: range = range(0)  # the indexes of summaries, after which messages were left out


def no_summaries(messages: Sequence[Message]) -> int:
    """The number of leading summaries in a conversation that has none."""
    del messages
    return 0


def open_turn(messages: Sequence[Message]) -> int:
    """The index of the open turn's first message: the user's last one.

    ADK passes other agents' messages to a model as user messages too, after the user's own.
    """
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    turn_starts = [index for index in users if not is_quote(messages[index])]
    return (turn_starts or users or [0])[-1]


def is_quote(message: Message) -> bool:
    """Whether a user message quotes another agent."""
    return message.content.startswith(OTHER_AGENT)


def fit(
    messages: Sequence[Message],
    room: int | None,
    calibration: Calibration | None = None,
    opens: Callable[[Sequence[Message]], int] = open_turn,
    summarised: Callable[[Sequence[Message]], int] = no_summaries,
) -> FittedConversation:
    """The newest messages that fit the room, with all messages of the open turn.

    Calls and their results stay together. `opens` finds the index where the open turn begins,
    `summarised` the number of leading summaries: they stay before any other older message.
    Raises ContextTooLongError if the open turn does not fit even with its outputs shortened.
    """
    tokens = (calibration or Calibration()).tokens
    total = sum(map(tokens, messages))
    if room is None or total <= room:
        return FittedConversation(list(messages), total)
    start = opens(messages)
    turn = _shortened(messages[start:], room, tokens)
    needed = sum(map(tokens, turn))
    if needed > room:
        raise ContextTooLongError(
            f"The open turn alone has about {needed} tokens, and there is room for {room}."
        )
    summaries = _newest_that_fit(
        messages[: min(summarised(messages), start)], room - needed, tokens
    )
    needed += sum(map(tokens, messages[summaries.start : summaries.stop]))
    older = [
        _shorter(message, room // _SHARE, tokens) for message in messages[summaries.stop : start]
    ]
    room_for_older = room - needed
    recent = (
        token_budget_truncate(older, room_for_older, tokens=tokens) if room_for_older > 0 else []
    )
    newest = [*recent, *turn]
    return FittedConversation(
        [*messages[summaries.start : summaries.stop], *newest],
        needed + sum(map(tokens, recent)),
        left_out=start - len(recent) - len(summaries),
        shortened=_changed(messages[len(messages) - len(newest) :], newest),
        summaries=summaries,
    )


def _newest_that_fit(summaries: Sequence[Message], room: int, tokens: Tokens) -> range:
    """The indexes of the newest summaries that fit."""
    first = len(summaries)
    while first > 0 and tokens(summaries[first - 1]) <= room:
        first -= 1
        room -= tokens(summaries[first])
    return range(first, len(summaries))


def _changed(before: Sequence[Message], after: Sequence[Message]) -> tuple[str, ...]:
    pairs = zip(before, after, strict=True)
    return tuple(call.id for old, new in pairs if new is not old for call in new.tool_calls)


def _shortened(messages: Sequence[Message], room: int, tokens: Tokens) -> list[Message]:
    """The messages with long outputs shortened to a common maximum, so that they fit."""
    floors = [min(tokens(message), tokens(_with_ends(message, 0))) for message in messages]
    wants = [tokens(message) - floor for message, floor in zip(messages, floors, strict=True)]
    height = _water_level(sorted(filter(None, wants)), room - sum(floors))
    return [
        _shorter(message, floor + height, tokens)
        for message, floor in zip(messages, floors, strict=True)
    ]


def _water_level(wants: Sequence[int], spare: int) -> int:
    """The highest cap at which the capped wants (sorted) sum up to at most `spare`."""
    for number, want in enumerate(wants):
        share = max(spare, 0) // (len(wants) - number)
        if want > share:
            return share
        spare -= want
    return max(wants, default=0)


def _shorter(message: Message, cap: int, tokens: Tokens) -> Message:
    """A tool message over the cap, with as much of both ends of its outputs as the cap allows."""
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
    """A text over `length` as JSON with its head (two thirds of `length`) and tail (a third)."""
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
