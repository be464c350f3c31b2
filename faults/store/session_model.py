"""A session service in plain Python: the reference for the real one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions.base_session_service import GetSessionConfig

from faults.store.fates import fate_of, normal_copy
from lango.adk.sessions.encode import entry_of
from lango.store.sessions.entries import readable_time

Delta = dict[str, Any]
_SHARED = ("app:", "user:")


@dataclass(slots=True)
class Row:
    """One event that was stored, or whose state was."""

    event: Event
    is_event: bool  # False: only its state delta counts
    live: bool = True

    @property
    def tokens(self) -> int:
        """The row's tokens in a window; other tests check the estimate itself."""
        entry = entry_of(self.event)[1]
        return entry.tokens if entry else 0

    @property
    def is_message(self) -> bool:
        """Whether user interfaces show the row: control rows are hidden."""
        entry = entry_of(self.event)[1]
        return entry is not None and entry.counts


@dataclass(slots=True, repr=False)
class ModelSession:
    """One session: its rows in order, and its session-scoped state."""

    app: str
    user: str
    id: str
    updated: float
    state: Delta
    rows: list[Row] = field(default_factory=list[Row])

    def __repr__(self) -> str:
        return f"{self.app}/{self.user}/{self.id} ({len(self.rows)} rows, {len(self.live)} live)"

    @property
    def live(self) -> list[Row]:
        """The rows that a load may return: events that no rewind removed."""
        return [row for row in self.rows if row.live and row.is_event]

    @property
    def events(self) -> list[Event]:
        """The events of a whole load."""
        return [row.event for row in self.live]

    def knows(self, event_id: str) -> bool:
        """Whether an event with this id was ever stored."""
        return any(row.event.id == event_id for row in self.rows)

    def configured(self, config: GetSessionConfig) -> list[Event]:
        """The events that a GetSessionConfig selects."""
        events = self.events
        if config.after_timestamp is not None:
            older = [n for n, e in enumerate(events) if e.timestamp < config.after_timestamp]
            events = events[older[-1] + 1 :] if older else events
        if config.num_recent_events is not None:
            events = events[max(0, len(events) - config.num_recent_events) :]
        return events

    def rewound(self, event: Event) -> Event:
        """Remove the rewound invocation and later rows; return the event with its real delta."""
        target = event.actions.rewind_before_invocation_id
        first = next((n for n, row in enumerate(self.rows) if self._begins(row, target)), None)
        if first is None:
            return event
        while first > 0 and self._belongs(self.rows[first - 1], target):
            first -= 1
        for row in self.rows[first:]:
            row.live = False
        before = _folded(row.event.actions.state_delta for row in self.rows if row.live)
        delta = {k: v for k, v in before.items() if k not in self.state or self.state[k] != v}
        delta |= {key: None for key in self.state if key not in before}
        return event.model_copy(
            update={"actions": event.actions.model_copy(update={"state_delta": delta})}
        )

    @staticmethod
    def _begins(row: Row, target: str | None) -> bool:
        return row.live and row.is_event and row.event.invocation_id == target

    @staticmethod
    def _belongs(row: Row, target: str | None) -> bool:
        """A state change of the same invocation that came right before its first event."""
        return not row.is_event and row.event.invocation_id == target


def _folded(deltas: Any) -> Delta:
    """The session-scoped state after some deltas, as ADK's rewind computes it."""
    values: Delta = {}
    for delta in deltas:
        for key, value in delta.items():
            if key.startswith(_SHARED):
                continue
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
    return values


@dataclass(slots=True)
class Model:
    """All sessions of a tenant, and their shared states."""

    sessions: dict[tuple[str, str, str], ModelSession] = field(
        default_factory=dict[tuple[str, str, str], ModelSession]
    )
    app_states: dict[str, Delta] = field(default_factory=dict[str, Delta])
    user_states: dict[tuple[str, str], Delta] = field(default_factory=dict[tuple[str, str], Delta])

    def create(self, app: str, user: str, session_id: str, state: Delta) -> ModelSession:
        """A new session, its initial state split over the scopes."""
        session = ModelSession(app, user, session_id, 0.0, {})
        self._merge(session, state)
        self.sessions[app, user, session_id] = session
        return session

    def append(self, session: ModelSession, event: Event) -> bool:
        """Store the event as the store must; return whether anything changed."""
        if event.partial:
            return False
        normal = normal_copy(event)
        fate = fate_of(normal)
        if fate == "dropped" or session.knows(normal.id):
            return False
        if normal.actions.rewind_before_invocation_id:
            normal = session.rewound(normal)
        session.rows.append(Row(normal, is_event=fate == "kept"))
        self._merge(session, normal.actions.state_delta)
        session.updated = readable_time(normal.timestamp).timestamp()
        return True

    def state(self, session: ModelSession) -> Delta:
        """The merged view that ADK shows."""
        app = self.app_states.get(session.app, {})
        user = self.user_states.get((session.app, session.user), {})
        return {
            **session.state,
            **{f"app:{key}": value for key, value in app.items()},
            **{f"user:{key}": value for key, value in user.items()},
        }

    def listed(self, app: str, user: str | None) -> list[ModelSession]:
        """Sessions by last update, oldest first."""
        found = [s for s in self.sessions.values() if s.app == app and user in (None, s.user)]
        return sorted(found, key=lambda s: (round(s.updated, 6), s.user, s.id))

    def _merge(self, session: ModelSession, delta: Delta) -> None:
        for key, value in delta.items():
            if key.startswith("app:"):
                self.app_states.setdefault(session.app, {})[key[4:]] = value
            elif key.startswith("user:"):
                where = (session.app, session.user)
                self.user_states.setdefault(where, {})[key[5:]] = value
            elif not key.startswith("temp:"):
                session.state[key] = value
