"""What a kill must not change: compares a session with that of a run without kills."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import sqlalchemy as sa
from google.adk.events.event import Event
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.adk.durable.ledger import INTERRUPTED
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.values import JsonObject
from lango.store.schema.tables import (
    artifacts,
    memories,
    messages,
    sessions,
    state_changes,
    tool_ledger,
    turns,
)
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore

_WELL: Final = {"completed", "answered", "input_required"}
_OWN_STATE: Final = ("temp:", "_adk")
_IDS: Final = re.compile(r"(turn|call|adk)[_-][\w#/.-]+")

Entry = tuple[str, str, str]
"""One message: its branch, its author, its text."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of all sessions of one trial."""

    history: tuple[tuple[Entry, ...], ...]  # of the session, then of its children
    state: JsonObject
    user_state: JsonObject
    turns: tuple[str, ...]
    artifacts: tuple[tuple[str, int], ...]
    artifact_deltas: Counter[tuple[str, int]]  # saved, according to the events
    gaps: bool
    calls: Counter[str]  # by session and id
    responses: Counter[str]
    finished: frozenset[str]  # calls whose result is in the ledger
    model_messages: int
    memory: Counter[tuple[str, str]]  # the author and the text of each entry
    rows: frozenset[str]  # all rows, complete, each with its table's name

    @property
    def has_unknown(self) -> bool:
        """Whether a tool that may not run twice was interrupted."""
        return INTERRUPTED in str(self.history)


async def snapshot(url: str, key: SessionKey) -> Snapshot:
    """The current sessions."""
    store = SqlSessionStore(url, pool_size=1)
    try:
        return await _snapshot(store, key)
    finally:
        await store.close()


async def _snapshot(store: SqlSessionStore, key: SessionKey) -> Snapshot:
    rows = await store.database.read(lambda connection: _rows(connection, key))
    service = SessionServiceAdapter(store, tenant=key.tenant, token_budget=None)
    names = [row["id"] for row in rows["sessions"]]
    loaded: list[list[Event]] = []
    state: dict[str, Any] = {}
    for name in names:
        session = await service.get_session(
            app_name=key.app_name, user_id=key.user_id, session_id=name
        )
        loaded.append(session.events if session else [])
        state = state or (dict(session.state) if session else {})
    named_events = [
        (name, event)
        for name, session_events in zip(names, loaded, strict=True)
        for event in session_events
    ]
    events = [event for _, event in named_events]
    return Snapshot(
        history=tuple(tuple(_entries(session_events)) for session_events in loaded),
        state={k: v for k, v in state.items() if not k.startswith((*_OWN_STATE, "user:"))},
        user_state={k: v for k, v in state.items() if k.startswith("user:")},
        turns=tuple(row["state"] for row in rows["turns"]),
        artifacts=tuple((row["name"], row["version"]) for row in rows["artifacts"]),
        artifact_deltas=Counter(
            saved for event in events for saved in event.actions.artifact_delta.items()
        ),
        gaps=_has_gaps(rows),
        calls=Counter(
            f"{name}/{call.id}"
            for name, event in named_events
            for call in event.get_function_calls()
        ),
        responses=Counter(
            f"{name}/{response.id}"
            for name, event in named_events
            for response in event.get_function_responses()
        ),
        finished=frozenset(
            f"{row['invocation_id']}/{row['call_key']}"
            for row in rows["ledger"]
            if row["status"] == "finished"
        ),
        model_messages=sum(_by_model(event) for event in events),
        memory=Counter((row["author"], row["text"]) for row in rows["memories"]),
        rows=frozenset(
            f"{name} {json.dumps(row, default=str, sort_keys=True)}"
            for name, table_rows in rows.items()
            for row in table_rows
        ),
    )


async def _rows(connection: AsyncConnection, key: SessionKey) -> dict[str, list[JsonObject]]:
    """Every row of the trial, which has its own tenant."""
    of_tenant = sessions.c.tenant == key.tenant
    pks = sa.select(sessions.c.pk).where(of_tenant)
    statements: dict[str, sa.Select[Any]] = {
        "sessions": sa.select(sessions).where(of_tenant).order_by(sessions.c.pk),
        "artifacts": sa.select(artifacts)
        .where(artifacts.c.tenant == key.tenant)
        .order_by(artifacts.c.name, artifacts.c.version),
        "messages": sa.select(messages).where(messages.c.session_pk.in_(pks)),
        "changes": sa.select(state_changes).where(state_changes.c.session_pk.in_(pks)),
        "ledger": sa.select(tool_ledger).where(tool_ledger.c.session_pk.in_(pks)),
        "memories": sa.select(memories).where(memories.c.tenant == key.tenant),
        "turns": sa.select(turns).where(turns.c.session_pk.in_(pks)).order_by(turns.c.number),
    }
    rows_by_table: dict[str, list[JsonObject]] = {}
    for name, statement in statements.items():
        result = await connection.execute(statement)
        rows_by_table[name] = [dict(row) for row in result.mappings()]
    return rows_by_table


def _has_gaps(rows: dict[str, list[JsonObject]]) -> bool:
    for session in rows["sessions"]:
        seq_rows = [*rows["messages"], *rows["changes"]]
        seqs = sorted(row["seq"] for row in seq_rows if row["session_pk"] == session["pk"])
        if seqs != list(range(1, session["next_seq"])):
            return True
    return False


def _by_model(event: Event) -> bool:
    says = event.content is not None and bool(event.content.parts)
    asks = any((call.name or "").startswith("adk_request") for call in event.get_function_calls())
    return bool(says and event.author != "user" and not event.get_function_responses()) and not asks


def _entries(events: Sequence[Event]) -> Iterator[Entry]:
    """The messages, without the ids that differ between runs."""
    for event in events:
        texts = [
            _part_text(part) for part in (event.content.parts if event.content else None) or []
        ]
        if texts or event.error_code:
            text = " | ".join(
                [*texts, *([f"error {event.error_code}"] if event.error_code else [])]
            )
            yield _IDS.sub("ID", event.branch or ""), event.author, text


def _part_text(part: Any) -> str:
    if part.function_call:
        return f"call {part.function_call.name} {_plain(part.function_call.args)}"
    if part.function_response:
        return f"gave {part.function_response.name} {_plain(part.function_response.response)}"
    return part.text or "?"


def _plain(value: Any) -> str:
    return _IDS.sub("ID", json.dumps(value, sort_keys=True, default=str))


@dataclass(frozen=True, slots=True)
class Trace:
    """What a process recorded while it ran."""

    points: tuple[str, ...] = ()
    effects: tuple[tuple[str, str, str], ...] = ()  # kind, call, name
    errors: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, after: int = 0) -> Trace:
        """Read a trace file, skipping the first `after` lines."""
        lines = path.read_text().splitlines()[after:] if path.exists() else []
        entries = [line.partition(" ") for line in lines]
        effects = [value.split(" ", 2) for kind, _, value in entries if kind == "effect"]
        return cls(
            tuple(value for kind, _, value in entries if kind == "point"),
            tuple(cast("tuple[str, str, str]", tuple(effect)) for effect in effects),
            tuple(value for kind, _, value in entries if kind == "error"),
        )

    @property
    def answers(self) -> int:
        """The number of completed model answers."""
        return self.points.count("model.end")


@dataclass(frozen=True, slots=True)
class Recovery:
    """A process that resumes after a kill: what it found, and what it did."""

    before: Snapshot
    trace: Trace


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial: the trace until the kill, the recoveries, and the final state."""

    before_kill: Trace
    recoveries: Sequence[Recovery]
    after: Snapshot


def wrongs(clean: Snapshot, clean_trace: Trace, trial: Trial) -> Iterator[str]:
    """The differences between a trial and the run without kills that must not be."""
    after = trial.after
    for recovery in trial.recoveries:
        yield from (f"recovery ended by {error}" for error in recovery.trace.errors)
    if after.turns != clean.turns and not (after.has_unknown and set(after.turns) <= _WELL):
        yield f"turns ended {after.turns}, not {clean.turns}"
    if after.gaps:
        yield "the sequence has gaps"
    if max(after.calls.values(), default=0) > 1:
        yield "a call stands there twice"
    if after.responses - after.calls and set(after.responses) - set(after.calls):
        yield "a response without its call"
    if set(after.calls) - set(after.responses) and not _same_open(clean, after):
        yield "a call without a response"
    if not after.has_unknown:
        yield from differences(clean, after)
    yield from _repeats(clean, clean_trace, trial)


def _same_open(clean: Snapshot, after: Snapshot) -> bool:
    return _open(clean) == _open(after)


def _open(shot: Snapshot) -> int:
    return len(set(shot.calls) - set(shot.responses))


def differences(clean: Snapshot, after: Snapshot) -> Iterator[str]:
    """The differences between the sessions of two trials, except ids, which always differ."""
    for expected, actual in zip(clean.history, after.history, strict=False):
        if _by_branch(expected) != _by_branch(actual):
            lost = list((Counter(expected) - Counter(actual)).elements())[:2]
            new = list((Counter(actual) - Counter(expected)).elements())[:2]
            yield f"the history differs: lacks {lost}, has {new}"
    if len(clean.history) != len(after.history):
        yield f"{len(after.history)} sessions, not {len(clean.history)}"
    if clean.state != after.state or clean.user_state != after.user_state:
        keys = clean.state.keys() | after.state.keys()
        different = {
            k: after.state.get(k) for k in keys if clean.state.get(k) != after.state.get(k)
        }
        yield f"the state differs: {different or 'of the user'}"
    if clean.artifacts != after.artifacts:
        yield f"artifacts {after.artifacts}, not {clean.artifacts}"
    if clean.memory != after.memory:
        lost, new = clean.memory - after.memory, after.memory - clean.memory
        yield f"the memory differs: lacks {list(lost)[:2]}, has {list(new)[:2]}"
    if clean.artifact_deltas != after.artifact_deltas:
        yield f"events tell of {dict(after.artifact_deltas)}, not {dict(clean.artifact_deltas)}"


def _by_branch(history: Sequence[Entry]) -> dict[str, list[Entry]]:
    """The history by branch: parallel agents are ordered only within their branch."""
    by_branch: dict[str, list[Entry]] = {}
    for entry in history:
        by_branch.setdefault(entry[0], []).append(entry)
    return by_branch


def _repeats(clean: Snapshot, clean_trace: Trace, trial: Trial) -> Iterator[str]:
    recoveries = trial.recoveries
    traces = [trial.before_kill, *(recovery.trace for recovery in recoveries)]
    effects = Counter(effect for trace in traces for effect in trace.effects)
    for (kind, _, name), times in effects.items():
        if kind == "once" and times > 1:
            yield f"{name} ran {times} times and may run once"
    for recovery in recoveries:
        for _, call, name in recovery.trace.effects:
            if call in recovery.before.finished:
                yield f"{name} had finished and ran again"
        missing = clean_trace.answers - recovery.before.model_messages
        answers = recovery.trace.answers
        if clean.model_messages == clean_trace.answers and answers > missing:
            yield f"{answers} model calls in a recovery, {missing} were missing"
