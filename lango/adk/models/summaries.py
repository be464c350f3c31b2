"""The summaries by which ADK's compaction replaces older messages in a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from google.adk.events.event import Event
from google.adk.events.event_actions import EventCompaction

from lango.adk.models.convert import convert_messages
from lango.adk.sessions.decode import compaction_of
from lango.core.messages.messages import Message
from lango.store.sessions.entries import StoredMessage


def newest_summary(events: Sequence[Event], scope: str | None = None) -> EventCompaction | None:
    """The newest summary of a session, or of one task in it."""
    for event in reversed(events):
        if event.actions.compaction is not None and event.isolation_scope == scope:
            return event.actions.compaction
    return None


def leading_summaries(messages: Sequence[Message], events: Sequence[Event]) -> int:
    """The number of summaries at the beginning of a request."""
    compactions = [event.actions.compaction for event in events if event.actions.compaction]
    return _leading(messages, compactions)


def without_summaries(
    messages: Sequence[Message], rows: Iterable[StoredMessage]
) -> Sequence[Message]:
    """A request without the summaries at its beginning."""
    compactions = [compaction for row in rows if (compaction := compaction_of(row))]
    return messages[_leading(messages, compactions) :]


def _leading(messages: Sequence[Message], compactions: Sequence[EventCompaction]) -> int:
    if not compactions:
        return 0
    summaries = convert_messages([compaction.compacted_content for compaction in compactions])
    texts = {summary.content for summary in summaries}
    count = 0
    while (
        count < len(messages) and messages[count].is_assistant and messages[count].content in texts
    ):
        count += 1
    return count
