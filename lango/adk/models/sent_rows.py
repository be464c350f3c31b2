"""Finds the stored messages that a request was made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lango.adk.models.summaries import without_summaries
from lango.adk.sessions.decode import message_of
from lango.core.messages.messages import CONTROL, Message
from lango.core.messages.pairing import INTERRUPTED
from lango.store.sessions.entries import StoredMessage

Span = tuple[int, int]


def sent_span(rows: Sequence[StoredMessage], messages: Sequence[Message]) -> Span | None:
    """The seqs of the oldest and the newest row that the messages came from.

    None if that is uncertain: ADK does not show an agent all stored messages, and adds its own.
    So each message must match its row, from the last one backwards. Summaries have no row of a
    message.
    """
    span: Span | None = None
    talk = without_summaries(messages, rows)
    unmatched = [message for message in talk if message.content != INTERRUPTED]
    for row in _newest_first(rows):
        if not unmatched:
            break
        count = _taken(row, unmatched)
        if count == 0:
            return None
        del unmatched[-count:]
        span = (row.seq, span[1] if span else row.seq)
    return span if not unmatched else None


def _newest_first(rows: Sequence[StoredMessage]) -> Iterator[StoredMessage]:
    return (row for row in reversed(rows) if row.role != CONTROL)


def _taken(row: StoredMessage, messages: Sequence[Message]) -> int:
    """How many of the last messages come from this row; 0 if it does not match."""
    stored = message_of(row)
    last = messages[-1]
    if last.is_tool and stored.is_tool:
        results = messages[-len(stored.tool_calls) :] if stored.tool_calls else ()
        names = [call.name for message in results for call in message.tool_calls]
        return len(names) if names == [call.name for call in stored.tool_calls] else 0
    if stored.role == last.role:
        same_calls = _names(stored) == _names(last)
        return int(same_calls and stored.content in last.content)
    # ADK quotes another agent's messages to this one as user messages.
    return int(last.role == "user" and f"[{row.author}]" in last.content)


def _names(message: Message) -> list[str]:
    return [call.name for call in message.tool_calls]
