"""A timeline as lines of text: a bar for each step, by its start and duration."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from lango.cli.output.moments import exact, span
from lango.cli.output.printable import one_line
from lango.cli.output.tables import cached, money
from lango.core.causes import MAX_TEXT, Cause, Causes
from lango.core.messages.streams import Usage
from lango.insight.timeline import Step, Timeline
from lango.store.turns.rows import Turn

_NAME: Final = 18
_TOOK: Final = 9
_NARROWEST: Final = 12
_WIDEST: Final = 60
_SHOWN: Final = 300
_ERROR: Final = MAX_TEXT + _SHOWN
_WAITING: Final = ("queue", "retry", "wait")
_LETTERS: Final = {"waiting": "░", "working": "█"}
_PLAIN: Final = ("completed", "")


def drawn(turn: Turn, timeline: Timeline, causes: Causes) -> Iterator[str]:
    """The lines of a timeline; errors have their causes."""
    end = timeline.ended or datetime.now(UTC)
    timeline = replace(timeline, steps=tuple(_explained(step, causes) for step in timeline.steps))
    yield from _head(turn, timeline, end, causes.get(turn.id))
    yield ""
    yield from _steps(timeline, end)
    yield from _errors(timeline, turn.id)
    if timeline.more:
        yield f"Only the first {len(timeline.steps):,} steps are shown."
    if not timeline.log_kept:
        yield "The turn's log was deleted: attempts, questions and some tools are not shown."


def _explained(step: Step, causes: Causes) -> Step:
    """The step; if its cause is known, its error names the exception and where it was raised."""
    cause = causes.get(step.error.error_id) if step.error else None
    if step.error is None or cause is None:
        return step
    return replace(step, error=replace(step.error, type="", message=str(cause)))


def _head(turn: Turn, timeline: Timeline, end: datetime, cause: Cause | None) -> Iterator[str]:
    took = span((end - timeline.started).total_seconds())
    yield f"{turn.id} {turn.state}{' for' if timeline.ended is None else ' in'} {took}"
    yield f"  session  {timeline.session}"
    yield f"  user     {one_line(f'{turn.session.user_id} in {turn.session.app_name}', 200)}"
    yield f"  began    {exact(timeline.started)}"
    if timeline.trace_id is not None:
        yield f"  trace    {timeline.trace_id}"
    yield f"  tokens   {_tokens(timeline.usage)}{_cost(timeline.cost)}"
    if turn.input.get("text"):
        yield f"  message  {one_line(str(turn.input['text']), _SHOWN)}"
    if turn.error:
        error = str(cause or f"{turn.error.get('type')}: {turn.error.get('message')}")
        yield f"  error    {one_line(error, _ERROR)}"
    if len(timeline.turns) > 1:
        other_turns = [turn_id for turn_id in timeline.turns if turn_id != turn.id]
        yield f"  with     {', '.join(other_turns)}: the questions and answers of one turn"


def _steps(timeline: Timeline, end: datetime) -> Iterator[str]:
    """A line for each step; the axis gets the width that names and times leave."""
    room = shutil.get_terminal_size().columns - _NAME - _TOOK - 2
    axis = max(min(room // 2, _WIDEST), _NARROWEST)
    for step in timeline.steps:
        bar = _bar(step, timeline.started, end, axis)
        took = span(((step.ended or end) - step.started).total_seconds())
        note = one_line(_note(step), max(room - axis - 2, _NARROWEST))
        yield f"{_name(step):{_NAME}}{bar}{took:>{_TOOK}}  {note}".rstrip()


def _errors(timeline: Timeline, turn_id: str) -> Iterator[str]:
    """The errors of steps in full, with the ids under which they are logged.

    Without that of the turn itself, which its head has.
    """
    failed = [
        step
        for step in timeline.steps
        if step.error is not None and step.kind != "retry" and step.error.error_id != turn_id
    ]
    if failed:
        yield ""
    for step in failed:
        yield f"{step.kind} {one_line(step.name, _SHOWN)}".rstrip() + f": {_error_text(step)}"


def _error_text(step: Step) -> str:
    error = step.error
    if error is None:
        return ""
    text = one_line(": ".join(part for part in (error.type, error.message) if part), _ERROR)
    return f"{text} ({error.error_id})" if error.error_id else text


def _bar(step: Step, begin: datetime, end: datetime, axis: int) -> str:
    """The step's bar on the axis: at least one character."""
    duration = max((end - begin).total_seconds(), 1e-9)
    first = min(int((step.started - begin).total_seconds() / duration * axis), axis - 1)
    last = round(((step.ended or end) - begin).total_seconds() / duration * axis)
    length = min(max(last - first, 1), axis - first)
    letter = _LETTERS["waiting" if step.kind in _WAITING else "working"]
    return (" " * first + letter * length).ljust(axis)


def _name(step: Step) -> str:
    if step.kind == "attempt":
        return f"attempt {step.number or 1}"
    within = "" if step.kind in ("queue", "wait") else "· "
    return one_line(f"{within}{step.kind} {step.name}", _NAME - 1)


def _note(step: Step) -> str:
    """The note beside a step's bar: outcome and error first."""
    notes = [] if step.outcome in _PLAIN else [str(step.outcome)]
    if step.error is not None:
        notes.append(_error_text(step))
    if step.kind == "model" and step.number and step.number > 1:
        notes.append(f"attempt {step.number}")
    if step.usage is not None:
        notes.append(f"{_tokens(step.usage)}{_cost(step.cost)}")
    return ", ".join(notes) or step.arguments


def _tokens(usage: Usage) -> str:
    return f"{usage.input:,} in{cached(usage)}, {usage.output:,} out"


def _cost(cost: float | None) -> str:
    return "" if cost is None else f", {money(cost)}"
