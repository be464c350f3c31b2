"""A context as lines of text: a bar for each part, by its number of tokens."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lango.cli.output.moments import exact
from lango.cli.output.printable import one_line
from lango.cli.output.tables import cached
from lango.insight.context import (
    ContextAttempt,
    ContextCall,
    ContextCut,
    ContextPreview,
    ContextSection,
    ContextView,
    MessagesKnown,
    SessionContext,
    WhyNotSent,
)

_BAR: Final = 16
_NAME: Final = 24
_NARROWEST: Final = 20
_LISTED: Final = 10
_LEFT_OUT: Final = "left out"
_WHY: Final[dict[WhyNotSent, str]] = {
    "budget": "over the token budget",
    "window": "over the model's window",
    "refused": "refused as too long",
    "summarised": "replaced by the summary",
    "not_given": "not loaded, or not for this agent",
}
_WORDS: Final[dict[str, str]] = {"started": "under way", "cut_off": "cut off with its worker"}
_KNOWN: Final[dict[MessagesKnown, str]] = {
    "exact": "",
    "ends": "Only the oldest and the newest message are certain: {sent} messages were sent.",
    "unknown": "Which of the stored messages were sent is not recorded; there were {sent}.",
}


@dataclass(frozen=True, slots=True)
class _Line:
    """A part of a context, before the bars are scaled."""

    number: str
    name: str
    tokens: int | None
    text: str

    @property
    def is_cut(self) -> bool:
        return self.name == _LEFT_OUT


def drawn(context: SessionContext) -> Iterator[str]:
    """The lines of a context."""
    if context.call is None:
        yield "No model has been called in this session."
    else:
        yield from _of_call(context.call)
    if context.preview is not None:
        yield ""
        yield from _of_preview(context.preview)
    if context.earlier:
        yield ""
        yield "Earlier calls, for --call:"
        yield from map(_listed, context.earlier[:_LISTED])


def _listed(call: ContextCall) -> str:
    size = f"{call.estimated:,} tokens, {_counted(call.messages_sent)}"
    cut = f", {call.left_out:,} left out" if call.left_out else ""
    failed = "" if call.outcome == "completed" else f"; {_WORDS.get(call.outcome, call.outcome)}"
    summary = " for a summary" if call.kind == "summary" else ""
    return f"  {call.call}  {call.started:%Y-%m-%d %H:%M:%S}  {size}{summary}{cut}{failed}"


def _of_call(call: ContextView) -> Iterator[str]:
    attempt = call.attempt
    tries = f", attempt {attempt.number}" if attempt.number > 1 else ""
    agent = f" by {call.agent}" if call.agent else ""
    purpose = " for a summary" if call.kind == "summary" else ""
    yield one_line(f"{call.call or 'A call'} to {_model(attempt)}{agent}{purpose}{tries}", 200)
    yield f"  turn    {one_line(call.turn, 100) or '-'}"
    yield f"  time    {_times(attempt)}"
    for earlier in call.attempts[:-1]:
        yield f"  before  attempt {earlier.number}, {_model(earlier)}: {_outcome(earlier)}"
    yield f"  tokens  {_tokens(attempt)}"
    yield f"  budget  {_budget(call)}"
    note = _KNOWN[call.messages_known].format(sent=call.messages_sent)
    if note:
        yield f"  {note}"
    yield ""
    lines = [*map(_prompt, _before_messages(call.sections)), *map(_cut, call.cut)]
    lines += _message_lines(call)
    if call.rest:
        content = "shortened outputs, and what ADK added" if call.shortened else "what ADK added"
        lines.append(_Line("", "the rest", call.rest, f"not itemised: {content}"))
    yield from _scaled(lines)


def _message_lines(call: ContextView) -> Iterator[_Line]:
    """The messages, with a line above those of the turn that the call belongs to."""
    is_in_turn = False
    for section in _messages(call.sections):
        if is_in_turn != (section.kind == "turn"):
            is_in_turn = not is_in_turn
            yield _Line("", "this turn:" if is_in_turn else "before:", 0, "")
        yield _message(section, call.agent)


def _of_preview(preview: ContextPreview) -> Iterator[str]:
    """What would be cut and what sent, in short: most of the messages are listed above."""
    budget = "no limit known" if preview.budget is None else f"{preview.budget:,} for messages"
    yield f"Preview of the history that the next call would get; budget: {budget}"
    if preview.problem:
        yield f"  There would be no call: {preview.problem}"
        return
    numbers = [section.number for section in preview.sections]
    sent_line = (
        _Line(_numbers(numbers), "sent", preview.tokens, _counted(len(numbers)))
        if numbers
        else None
    )
    yield from _scaled([*map(_cut, preview.cut), *([sent_line] if sent_line else [])])


def _before_messages(sections: Sequence[ContextSection]) -> Iterator[ContextSection]:
    return (section for section in sections if section.number is None)


def _messages(sections: Sequence[ContextSection]) -> Iterator[ContextSection]:
    return (section for section in sections if section.number is not None)


def _model(attempt: ContextAttempt) -> str:
    return f"{attempt.provider}:{attempt.model}"


def _outcome(attempt: ContextAttempt) -> str:
    outcome = _WORDS.get(attempt.outcome, attempt.outcome)
    return f"{outcome} ({attempt.error})" if attempt.error else outcome


def _times(attempt: ContextAttempt) -> str:
    if attempt.outcome == "started":
        return f"{exact(attempt.started)}; {_outcome(attempt)}"
    took = (attempt.ended - attempt.started).total_seconds()
    first = ""
    if attempt.first_byte is not None:
        first = f", first word after {(attempt.first_byte - attempt.started).total_seconds():.1f} s"
    return f"{exact(attempt.started)}, {took:.1f} s{first}; {_outcome(attempt)}"


def _tokens(attempt: ContextAttempt) -> str:
    usage = attempt.usage
    if usage is None:
        reported = "the provider reported none"
    else:
        reported = f"{usage.input:,} reported{cached(usage)}, {usage.output:,} answered"
    cost = "" if attempt.cost is None else f"; ${attempt.cost:.6f}"
    return f"{attempt.estimated:,} estimated, {reported}{cost}"


def _budget(call: ContextView) -> str:
    if call.budget is None:
        return "not recorded"
    tokens = call.attempt.estimated
    tokens -= sum(section.tokens or 0 for section in _before_messages(call.sections))
    return f"{call.budget:,} for messages, as the model counts; they are estimated at {tokens:,}"


def _prompt(section: ContextSection) -> _Line:
    text = ", ".join(section.tools) if section.kind == "tools" else section.text
    return _Line("", section.kind, section.tokens, text)


def _message(section: ContextSection, agent: str) -> _Line:
    is_anothers = section.author not in ("", "user", agent)
    name = f"{section.role} ({section.author})" if is_anothers else section.role
    tools = ", ".join(section.tools)
    marks = [
        f"replaces {_numbers(section.replaces)}" if section.replaces else "",
        "shortened" if section.shortened else "",
        "retold as a user's words" if section.retold else "",
        f"from {tools}" if tools and section.role == "tool" else "",
    ]
    number = _numbers([section.number])
    return _Line(number, name, section.tokens, _joined([*marks, section.text]))


def _joined(texts: Sequence[str]) -> str:
    return " · ".join(filter(None, texts))


def _cut(cut: ContextCut) -> _Line:
    begins = "where they begin is counted, not recorded" if cut.counted else ""
    text = _joined([f"{_counted(cut.messages)}: {_WHY[cut.why]}", begins])
    return _Line(_numbers([cut.first, cut.last]), _LEFT_OUT, cut.tokens, text)


def _counted(messages: int) -> str:
    return "1 message" if messages == 1 else f"{messages:,} messages"


def _numbers(numbers: Sequence[int | None]) -> str:
    first, last = numbers[0], numbers[-1]
    if first is None or last is None:
        return "?"
    return str(first) if first == last else f"{first}-{last}"


def _scaled(lines: Sequence[_Line]) -> Iterator[str]:
    """The lines in columns. Sent parts set the scale of the bars; bars of cut parts are clipped."""
    largest = max((line.tokens or 0 for line in lines if not line.is_cut), default=0) or 1
    numbers = max((len(line.number) for line in lines), default=0)
    names = max((len(one_line(line.name, _NAME)) for line in lines), default=0)
    width = shutil.get_terminal_size().columns
    for line in lines:
        tokens = "?" if line.tokens is None else f"{line.tokens:,}" if line.tokens else ""
        full = min(_BAR, -(-_BAR * (line.tokens or 0) // largest))
        bar = ("░" if line.is_cut else "█") * full
        head = f"  {line.number:>{numbers}}  {one_line(line.name, _NAME):<{names}}  {tokens:>7}  "
        room = max(width - len(head) - _BAR - 2, _NARROWEST)
        text = line.text if line.is_cut else one_line(line.text, room)  # a reason stays whole
        yield f"{head}{bar:<{_BAR}}  {text}".rstrip()
