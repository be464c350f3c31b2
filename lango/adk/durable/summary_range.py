"""The events that a summary replaces, as they fit into the summariser's request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, takewhile
from math import inf
from typing import Any, Final

from google.adk.events.event import Event
from google.genai import types

from lango.adk.models.summaries import newest_summary
from lango.core.context.tokens import estimate_tokens

_MAX_TOOL_TEXT: Final = 2_000
"""Characters of a call or a result in the prompt of ADK's summariser."""


def events_to_summarise(
    events: Sequence[Event], session: Sequence[Event], room: int, *, keep_newest: bool
) -> list[Event]:
    """The summary so far, and the oldest of ADK's choice of events that fit.

    Empty if there is nothing that the summary so far does not cover. With `keep_newest`, the
    newest message stays: a model is about to answer it.
    """
    scope = events[0].isolation_scope
    last = newest_summary(session, scope)
    covered = last.end_timestamp if last else -inf
    so_far: list[Event] = []
    if last is not None:
        if events[0].content == last.compacted_content:  # ADK put it before them
            events = events[1:]
        if events_tokens(events) > room:  # the summary has an overlap already
            events = [event for event in events if event.timestamp > covered]
        so_far = [_seed(last.start_timestamp, last.compacted_content, scope)]
    uncovered = [
        event
        for event in session
        if event.content and event.isolation_scope == scope and event.timestamp > covered
    ]
    if keep_newest and uncovered:
        newest = uncovered[-1].id
        events = list(takewhile(lambda event: event.id != newest, events))
    fitted = fitting(so_far, events, room)
    ids = {event.id for event in fitted}
    batch = separate(fitted, [event for event in uncovered if event.id not in ids])
    is_new = any(event.content and event.timestamp > covered for event in batch)
    return batch if is_new else []


def _seed(start: float, content: types.Content, scope: str | None) -> Event:
    return Event(author="model", timestamp=start, content=content, isolation_scope=scope)


def separate(events: Sequence[Event], others: Sequence[Event]) -> list[Event]:
    """The longest beginning that ends before the times of all other events.

    ADK hides events by their time. Rows that were imported, or written without summaries, may
    have any.
    """
    following = min((event.timestamp for event in others), default=inf)
    newest = list(accumulate((event.timestamp for event in events), max))
    for count in range(len(events), 0, -1):
        if newest[count - 1] < following:
            return list(events[:count])
        following = min(following, events[count - 1].timestamp)
    return []


def open_message(session: Sequence[Event], invocation_id: str, end: float) -> str:
    """The user's message of an invocation, if a summary up to `end` hides only a part of that."""
    messages = [
        event for event in session if event.invocation_id == invocation_id and event.content
    ]
    if all(event.timestamp <= end for event in messages):
        return ""
    hidden = [event for event in messages if event.author == "user" and event.timestamp <= end]
    texts = [part.text for event in hidden for part in _parts(event) if part.text]
    return "\n\n".join(texts)


def fitting(summary: Sequence[Event], events: Sequence[Event], room: int) -> list[Event]:
    """The summary so far and the oldest turns that fit; of the first turn at least its beginnings.

    Every summary covers at least one more turn, so that one long turn does not block the others.
    """
    if not events:
        return []
    room -= events_tokens(summary)
    ends = [
        end
        for end in range(1, len(events) + 1)
        if end == len(events) or events[end].invocation_id != events[end - 1].invocation_id
    ]
    sizes = list(accumulate(map(_tokens, events)))
    fit = [end for end in ends if sizes[end - 1] <= room]
    turns = events[: fit[-1]] if fit else _shortened(events[: ends[0]], room)
    return [*summary, *turns]


def _shortened(events: Sequence[Event], room: int) -> list[Event]:
    """The events with the ends of their texts left out, all in proportion."""
    fixed_tokens = events_tokens(_cut_events(events, 0.0))  # names, and what is around the texts
    share = max(room - fixed_tokens, 0) / max(events_tokens(events) - fixed_tokens, 1)
    return _cut_events(events, min(share, 1.0))


def _cut_events(events: Sequence[Event], share: float) -> list[Event]:
    return [event.model_copy(update={"content": _cut(event.content, share)}) for event in events]


def _cut(content: types.Content | None, share: float) -> types.Content | None:
    if content is None:
        return None
    parts = [_cut_part(part, share) for part in content.parts or ()]
    return content.model_copy(update={"parts": parts})


def _cut_part(part: types.Part, share: float) -> types.Part:
    changed: dict[str, Any] = {}
    if part.text:
        changed["text"] = part.text[: int(len(part.text) * share)]
    for name, field in (("function_call", "args"), ("function_response", "response")):
        holder: Any = getattr(part, name)
        if holder is not None:
            text = str(getattr(holder, field))[:_MAX_TOOL_TEXT]
            short = {"beginning": text[: int(len(text) * share)]}
            changed[name] = holder.model_copy(update={field: short})
    return part.model_copy(update=changed)


def events_tokens(events: Sequence[Event]) -> int:
    """The estimated tokens of events in the prompt of ADK's summariser."""
    return sum(map(_tokens, events))


def _tokens(event: Event) -> int:
    return sum(map(estimate_tokens, _texts(event)))


def _texts(event: Event) -> Iterator[str]:
    """The texts of an event as the summariser's prompt has them."""
    for part in _parts(event):
        if part.text:
            yield f"{event.author}: {part.text}\n"
        if call := part.function_call:
            yield f"{event.author} called tool: {call.name}({str(call.args)[:_MAX_TOOL_TEXT]})\n"
        if result := part.function_response:
            yield f"Tool response from {result.name}: {str(result.response)[:_MAX_TOOL_TEXT]}\n"


def _parts(event: Event) -> Sequence[types.Part]:
    return (event.content.parts if event.content else None) or ()
