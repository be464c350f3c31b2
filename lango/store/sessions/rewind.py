"""Rewinding: undo an invocation and all that followed.

ADK computes what a rewind changes from the events it has loaded, and would set every key it does
not see to None. This module computes it from all stored changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.values import JsonObject
from lango.store.db.statement import Row
from lango.store.files.rows import refill_version, restore_version
from lango.store.memory.rows import forget_undone
from lango.store.schema.tables import messages, state_changes
from lango.store.sessions.counters import Counters, rewound
from lango.store.sessions.entries import Entry, Rewind, SessionKey

STATE = "state_delta"
ARTIFACTS = "artifact_delta"
MESSAGE_COUNT: Final = sa.func.sum(sa.case((messages.c.role == "control", 0), else_=1))
"""The messages among some stored rows: control rows are not counted."""
_SHARED = ("app:", "user:", "temp:")


@dataclass(frozen=True, slots=True)
class RewindResult:
    """The session after a rewind undid its rows, and what the rewind changes."""

    counters: Counters
    state: JsonObject
    artifacts: dict[str, int]

    @property
    def changes(self) -> JsonObject | None:
        """The changes that the rewind's own row records."""
        changes = {STATE: self.state, ARTIFACTS: self.artifacts}
        return {name: change for name, change in changes.items() if change} or None


async def undo(connection: AsyncConnection, session: Row, entry: Entry) -> RewindResult | None:
    """Mark the rows from the rewound invocation on, and compute the state before it.

    None if the entry rewinds no stored invocation: its own changes then apply.
    """
    rewind = entry.rewind
    first = await _first_seq(connection, session, rewind) if rewind else None
    if rewind is None or first is None:
        return None
    before, after = await changes_around(connection, session.pk, first)
    tokens, count = await _mark(connection, session, first)
    await forget_undone(connection, session.pk, first)
    return RewindResult(
        counters=rewound(
            Counters.of(session),
            first,
            tokens=tokens,
            messages=count,
            compacted_seq=await newest_compaction(
                connection, session.pk, session.compacted_seq, first
            ),
        ),
        state=state_delta(folded(before, STATE), session.state),
        artifacts=await _artifacts(connection, session, rewind, before, after),
    )


def state_delta(target: Mapping[str, Any], current: Mapping[str, Any]) -> JsonObject:
    """The change from the current state to the target, as ADK writes it: None removes a key."""
    delta = {
        key: value for key, value in target.items() if key not in current or current[key] != value
    }
    return delta | {key: None for key in current if key not in target}


async def _first_seq(connection: AsyncConnection, session: Row, rewind: Rewind) -> int | None:
    """The first seq of the invocation: the caller's rows may begin in the middle of it."""
    target = rewind.before_invocation_id
    of_session = messages.c.session_pk == session.pk
    message_seq = rewind.first_seq
    if message_seq is None:  # a plain Session object: look for it, from the oldest row on
        message_seq = await connection.scalar(
            sa.select(sa.func.min(messages.c.seq)).where(
                of_session, messages.c.undone_by.is_(None), messages.c.invocation_id == target
            )
        )
    if message_seq is None:
        return None
    previous_seq = await connection.scalar(
        sa.select(messages.c.seq)
        .where(of_session, messages.c.seq < message_seq, messages.c.undone_by.is_(None))
        .where(messages.c.invocation_id != target)
        .order_by(messages.c.seq.desc())
        .limit(1)
    )
    earliest_seq = await connection.scalar(
        sa.select(sa.func.min(messages.c.seq)).where(
            of_session,
            messages.c.seq.between((previous_seq or 0) + 1, message_seq),
            messages.c.invocation_id == target,
        )
    )
    state_only = await connection.scalar(
        sa.select(sa.func.min(state_changes.c.seq)).where(
            state_changes.c.session_pk == session.pk,
            state_changes.c.seq.between((previous_seq or 0) + 1, message_seq),
            state_changes.c.invocation_id == target,
        )
    )
    return min(seq for seq in (message_seq, earliest_seq, state_only) if seq is not None)


async def _mark(connection: AsyncConnection, session: Row, first: int) -> tuple[int, int]:
    """Mark the undone rows; returns their tokens and their number of messages."""
    conditions = (
        messages.c.session_pk == session.pk,
        messages.c.seq >= first,
        messages.c.undone_by.is_(None),
    )
    sums = sa.select(sa.func.sum(messages.c.tokens), MESSAGE_COUNT).where(*conditions)
    tokens, count = (await connection.execute(sums)).one()
    await connection.execute(
        sa.update(messages).where(*conditions).values(undone_by=session.next_seq)
    )
    await connection.execute(
        sa.update(state_changes)
        .where(
            state_changes.c.session_pk == session.pk,
            state_changes.c.seq >= first,
            state_changes.c.undone_by.is_(None),
        )
        .values(undone_by=session.next_seq)
    )
    return int(tokens or 0), int(count or 0)


async def changes_around(
    connection: AsyncConnection, pk: int, first: int
) -> tuple[list[JsonObject], list[JsonObject]]:
    """All changes before a seq, and all from it on, oldest first."""
    stored = sa.select(messages.c.seq, messages.c.changes).where(
        messages.c.session_pk == pk,
        messages.c.undone_by.is_(None),
        messages.c.changes.is_not(None),
    )
    state_only = sa.select(state_changes.c.seq, state_changes.c.delta).where(
        state_changes.c.session_pk == pk, state_changes.c.undone_by.is_(None)
    )
    rows = [(seq, changes) for seq, changes in await connection.execute(stored)]
    rows += [(seq, {STATE: delta}) for seq, delta in await connection.execute(state_only)]
    rows.sort(key=lambda row: row[0])
    before = [changes for seq, changes in rows if seq < first]
    return before, [changes for seq, changes in rows if seq >= first]


def folded(changes: Iterable[JsonObject], kind: str) -> JsonObject:
    """The values after a series of changes; None removes one, as in ADK's rewind."""
    values: JsonObject = {}
    for change in changes:
        for key, value in change.get(kind, {}).items():
            if key.startswith(_SHARED):
                continue
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
    return values


async def _artifacts(
    connection: AsyncConnection,
    session: Row,
    rewind: Rewind,
    before: list[JsonObject],
    after: list[JsonObject],
) -> dict[str, int]:
    """ADK's artifact change, completed: ADK knows only the versions that were loaded."""
    previous, current = folded(before, ARTIFACTS), folded([*before, *after], ARTIFACTS)
    delta = dict(rewind.artifact_delta)
    key = SessionKey(session.tenant, session.app_name, session.user_id, session.id)
    for name in sorted(current):
        if name in delta:
            if name in previous:  # ADK may have hidden it, not knowing of this version
                await refill_version(connection, key, name, previous[name], into=delta[name])
        elif current[name] != previous.get(name):
            restored = await restore_version(connection, key, name, previous.get(name))
            delta |= {} if restored is None else {name: restored}
    return delta


async def newest_compaction(
    connection: AsyncConnection, pk: int, newest: int | None, first: int
) -> int | None:
    """The newest compaction of a session before `first`; `newest` is the newest of all."""
    if newest is None or newest < first:
        return newest
    # Rare (a rewind past a compaction): scan back to the one before.
    rows = await connection.execute(
        sa.select(messages.c.seq, messages.c.event)
        .where(
            messages.c.session_pk == pk,
            messages.c.seq < first,
            messages.c.role == "control",
        )
        .where(messages.c.undone_by.is_(None))
        .order_by(messages.c.seq.desc())
    )
    for seq, event in rows:
        if event and "compaction" in event.get("actions", {}) and not event.get("isolation_scope"):
            return seq
    return None
