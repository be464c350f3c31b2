"""The context of a model call: what the model saw, what it did not, and why.

The view is built from the record of the call and the stored messages. What neither holds is
marked as unknown, not guessed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from lango.core.context.budget import request_tokens
from lango.core.context.model_calls import CallKind, CallOutcome, ModelCall
from lango.core.context.tokens import estimate_tokens
from lango.core.messages.messages import Message
from lango.core.messages.pairing import pair_calls
from lango.core.messages.streams import Usage
from lango.core.times import moment, moment_or_none

TEXT_ROOM: Final = 2_000
"""Characters shown of a text by default."""

SectionKind = Literal["system", "tools", "summary", "history", "turn"]
MessagesKnown = Literal["exact", "ends", "unknown"]
"""Which stored messages of a request are known: all; only the oldest and the newest, because the
number sent differs from the number stored between them; none."""
WhyNotSent = Literal["budget", "window", "refused", "summarised", "not_given"]
"""Over the token budget or the model's window; the model refused more; replaced by a summary; or
never part of the request: not loaded, or not visible to this agent (which of the two is not
recorded)."""


@dataclass(frozen=True, slots=True)
class ContextSection:
    """One part of a request: the instruction, the tools, or a stored message."""

    kind: SectionKind
    text: str
    characters: int  # of the whole text; `text` may be only its beginning
    tokens: int | None  # estimated; None (not recorded) for a shortened output
    role: str = ""
    author: str = ""
    number: int | None = None  # of the stored message
    tools: tuple[str, ...] = ()  # declared, called, or with results
    shortened: bool = False  # the model saw less of it than is stored
    retold: bool = False  # another agent's message, which ADK passes on as a user message
    replaces: tuple[int, int] | None = None  # a summary: the first and the last message it replaces


@dataclass(frozen=True, slots=True)
class ContextCut:
    """Stored messages that the model did not see. None: unknown."""

    first: int | None
    last: int | None
    messages: int
    tokens: int | None
    why: WhyNotSent
    counted: bool = False  # `first` is counted back from the oldest message sent, not recorded


@dataclass(frozen=True, slots=True)
class ContextAttempt:
    """One attempt of the call."""

    number: int
    provider: str
    model: str
    started: datetime
    first_byte: datetime | None
    ended: datetime
    outcome: CallOutcome
    error: str  # the class of the error that ended it
    request_id: str
    estimated: int  # tokens of the whole prompt
    usage: Usage | None  # as reported; None: not reported
    cost: float | None  # US dollars; None: unknown


@dataclass(frozen=True, slots=True)
class ContextView:
    """What the model saw in the last attempt of a call."""

    call: str
    turn: str
    agent: str
    attempt: ContextAttempt
    attempts: tuple[ContextAttempt, ...]
    budget: int | None  # tokens the messages were allowed; None: not recorded
    messages_known: MessagesKnown
    messages_sent: int  # a row with several results counts as several
    sections: tuple[ContextSection, ...]
    rest: int  # estimated tokens in no section: shortened outputs, text added by ADK
    cut: tuple[ContextCut, ...]
    shortened: tuple[str, ...]  # ids of the calls whose outputs were shortened
    kind: CallKind = "answer"


@dataclass(frozen=True, slots=True)
class ContextPreview:
    """A prediction of the history that the next call would get."""

    budget: int | None  # tokens for messages, based on the newest call; None: no limit known
    tokens: int
    sections: tuple[ContextSection, ...]
    cut: tuple[ContextCut, ...]
    problem: str = ""  # why there would be no call


@dataclass(frozen=True, slots=True)
class ContextCall:
    """An entry in a list of calls, with the data of the call's last attempt."""

    call: str
    turn: str
    agent: str
    provider: str
    model: str
    started: datetime
    outcome: CallOutcome
    estimated: int
    messages_sent: int
    left_out: int
    kind: CallKind = "answer"


@dataclass(frozen=True, slots=True)
class SessionContext:
    """A call of a session; for the newest answer also the preview and the other calls."""

    call: ContextView | None
    preview: ContextPreview | None = None
    earlier: tuple[ContextCall, ...] = ()  # the newest first


@dataclass(frozen=True, slots=True)
class StoredTalk:
    """A stored message, and the messages that represent it in a request."""

    number: int
    turn: str
    role: str
    author: str
    messages: tuple[Message, ...]

    @property
    def tokens(self) -> int:
        """The estimate of all of them."""
        return sum(map(request_tokens, self.messages))


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """A stored summary: its row, its message in a request, and the messages that it replaces."""

    number: int
    message: Message
    replaces: ContextCut

    def section(self, text_room: int | None = TEXT_ROOM) -> ContextSection:
        """The summary as a part of a request."""
        first, last = self.replaces.first, self.replaces.last
        return ContextSection(
            kind="summary",
            role="summary",
            number=self.number,
            text=self.message.content[:text_room],
            characters=len(self.message.content),
            tokens=request_tokens(self.message),
            replaces=None if first is None or last is None else (first, last),
        )


@dataclass(frozen=True, slots=True)
class Prompt:
    """The instruction and the tool declarations of a request, if stored; None: there was none."""

    system: str | None = None
    tools: str | None = None


def view(
    attempts: Sequence[ModelCall],
    prompt: Prompt,
    talk: Sequence[StoredTalk],
    cut: Sequence[ContextCut],
    text_room: int | None = TEXT_ROOM,
    summary: StoredSummary | None = None,
) -> ContextView:
    """The view of a call from its attempts; it shows the last one.

    `talk` are the stored messages from the oldest sent to the newest; empty if unknown. `summary`
    replaces those before them.
    """
    call = attempts[-1]
    messages = message_sections(
        talk, text_room, turn=call.turn, agent=call.agent, shortened=call.shortened
    )
    summaries = [summary.section(text_room)] if summary else []
    sections = [*prompt_sections(prompt, text_room), *summaries, *messages]
    context_attempts = tuple(map(_attempt, attempts))
    return ContextView(
        call=call.call,
        kind=call.kind,
        turn=call.turn,
        agent=call.agent,
        attempt=context_attempts[-1],
        attempts=context_attempts,
        budget=call.budget or None,
        messages_known=_known(call, talk, len(summaries)),
        messages_sent=call.sent,
        sections=tuple(sections),
        rest=call.estimated - sum(section.tokens or 0 for section in sections),
        cut=tuple(cut),
        shortened=call.shortened,
    )


def request_messages(talk: Sequence[StoredTalk]) -> list[Message]:
    """The stored messages as a request has them."""
    return pair_calls([message for stored in talk for message in stored.messages])


def _known(call: ModelCall, talk: Sequence[StoredTalk], summaries: int) -> MessagesKnown:
    if call.first_seq is None:
        return "unknown"
    return "exact" if len(request_messages(talk)) + summaries == call.sent else "ends"


def _attempt(call: ModelCall) -> ContextAttempt:
    attempt = call.attempt
    return ContextAttempt(
        number=call.number,
        provider=attempt.provider,
        model=attempt.model,
        started=moment(attempt.started),
        first_byte=moment_or_none(attempt.first_byte),
        ended=moment(attempt.ended),
        outcome=attempt.outcome,
        error=attempt.error,
        request_id=attempt.request_id,
        estimated=call.estimated,
        usage=attempt.usage,
        cost=call.price,
    )


def other_calls(attempts: Sequence[ModelCall], viewed: str) -> tuple[ContextCall, ...]:
    """The calls except the shown one, newest first; the attempts must be in order."""
    last = {call.call: call for call in attempts if call.call != viewed}
    return tuple(map(_listed, list(last.values())[::-1]))


def _listed(call: ModelCall) -> ContextCall:
    attempt = call.attempt
    return ContextCall(
        call=call.call,
        kind=call.kind,
        turn=call.turn,
        agent=call.agent,
        provider=attempt.provider,
        model=attempt.model,
        started=moment(attempt.started),
        outcome=attempt.outcome,
        estimated=call.estimated,
        messages_sent=call.sent,
        left_out=call.left_out,
    )


def prompt_sections(prompt: Prompt, text_room: int | None = TEXT_ROOM) -> Iterator[ContextSection]:
    """The instruction and the tool declarations."""
    texts: dict[SectionKind, str | None] = {"system": prompt.system, "tools": prompt.tools}
    for kind, text in texts.items():
        if text is not None:
            yield ContextSection(
                kind=kind,
                role="system",
                text=text[:text_room],
                characters=len(text),
                tokens=estimate_tokens(text),
                tools=tuple(_declared(text)) if kind == "tools" else (),
            )


def _declared(text: str) -> Iterator[str]:
    """The tool names in declarations, in the format of lango's models or of ADK."""
    declarations: Any = json.loads(text)
    for tool in declarations:
        if isinstance(tool, list):
            yield str(tool[0])  # pyright: ignore[reportUnknownArgumentType]
            continue
        for declared in tool.get("function_declarations") or ():
            yield str(declared.get("name", ""))


def message_sections(
    talk: Sequence[StoredTalk],
    text_room: int | None = TEXT_ROOM,
    *,
    turn: str = "",
    agent: str = "",
    shortened: Collection[str] = (),
) -> Iterator[ContextSection]:
    """A section for each stored message, as a call of this turn and agent sees it."""
    for stored in talk:
        calls = [call for message in stored.messages for call in message.tool_calls]
        text = "\n".join(map(_words, stored.messages))
        is_shortened = stored.messages[0].is_tool and any(call.id in shortened for call in calls)
        yield ContextSection(
            kind="turn" if turn and stored.turn == turn else "history",
            role=stored.role,
            author=stored.author,
            number=stored.number,
            text=text[:text_room],
            characters=len(text),
            tokens=None if is_shortened else stored.tokens,
            tools=tuple(call.name for call in calls),
            shortened=is_shortened,
            retold=bool(agent) and stored.author not in ("", "user", agent),
        )


def _words(message: Message) -> str:
    """A message as text for people: reasoning, content, inputs of calls, and media types."""
    thoughts = [thought.text for thought in message.reasoning]
    inputs = [f"{call.name} {call.input}" for call in message.tool_calls if not message.is_tool]
    media = [f"[{item.mime_type}]" for item in message.media]
    return "\n".join(filter(None, [*thoughts, message.content, *inputs, *media]))


def newest_of(talk: Sequence[StoredTalk], messages: int) -> Sequence[StoredTalk]:
    """The newest stored messages that make up this number of request messages."""
    start = len(talk)
    while start > 0 and messages > 0:
        start -= 1
        messages -= len(talk[start].messages)
    return talk[start:]


def cut_of(talk: Sequence[StoredTalk], reason: WhyNotSent, *, counted: bool = False) -> ContextCut:
    """These messages as one cut."""
    tokens = sum(stored.tokens for stored in talk)
    return ContextCut(talk[0].number, talk[-1].number, len(talk), tokens, reason, counted)
