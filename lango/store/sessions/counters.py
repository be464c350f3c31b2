"""The counters of a session: what each entry adds to the session's row.

`advance` is the one rule for every path that stores entries. The append statement for PostgreSQL
(`statements.py`) repeats it in SQL for plain entries; `test_counters.py` compares both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lango.core.values import JsonObject
from lango.store.sessions import retained_rows
from lango.store.sessions.entries import Entry
from lango.store.sessions.retained_rows import Calls, RetainedCalls


class Counters(NamedTuple):
    """The columns of `sessions` that follow from the session's entries."""

    next_seq: int = 1
    total_tokens: int = 0
    message_count: int = 0
    invocation_id: str = ""  # of the current turn
    turn_seq: int = 1  # the first row of the current turn
    compacted_seq: int | None = None  # the newest compaction
    open_calls: Calls | None = None
    closed_calls: Calls | None = None

    @staticmethod
    def of(session: Any) -> Counters:
        """The counters of a row of `sessions`."""
        return Counters(*(getattr(session, name) for name in Counters._fields))

    @property
    def columns(self) -> JsonObject:
        """The counters as the values of their columns."""
        return self._asdict()

    @property
    def retained_calls(self) -> RetainedCalls:
        """The calls of the session."""
        return RetainedCalls(self.open_calls, self.closed_calls)


def advance(before: Counters, entry: Entry) -> Counters:
    """The counters after the entry is stored at `before.next_seq`."""
    seq = before.next_seq
    new_turn = entry.begins_turn(before.invocation_id)
    turn_seq = seq if new_turn else before.turn_seq
    calls = retained_rows.after_append(
        before.retained_calls, entry, seq=seq, turn_seq=turn_seq, new_turn=new_turn
    )
    return Counters(
        next_seq=seq + 1,
        total_tokens=before.total_tokens + entry.tokens,
        message_count=before.message_count + entry.counts,
        invocation_id=entry.invocation_id if new_turn else before.invocation_id,
        turn_seq=turn_seq,
        compacted_seq=seq if entry.compaction and not entry.scope else before.compacted_seq,
        open_calls=calls.open,
        closed_calls=calls.closed,
    )


def rewound(
    before: Counters, first: int, *, tokens: int, messages: int, compacted_seq: int | None
) -> Counters:
    """The counters after a rewind undid the rows from `first` on, before its own row is stored.

    `tokens` and `messages` are the sums of the undone rows, `compacted_seq` is the newest
    compaction before them. Undone rows keep their numbers, so `next_seq` stays.
    """
    calls = retained_rows.before_rewind(before.retained_calls, first)
    return before._replace(
        total_tokens=before.total_tokens - tokens,
        message_count=before.message_count - messages,
        compacted_seq=compacted_seq,
        open_calls=calls.open,
        closed_calls=calls.closed,
    )
