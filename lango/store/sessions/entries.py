"""The values that the store takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from lango.core.ids import MAX_SESSION_KEY_BYTES, check_id, check_key
from lango.core.values import JsonObject
from lango.store.files.contents import BytesInMemory, Content


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The name of a session: tenant, app, user and session id."""

    tenant: str
    app_name: str
    user_id: str
    session_id: str

    def checked(self) -> SessionKey:
        """This key, or InvalidIdError. Only the tenant may be empty: none is set."""
        if self.tenant:
            check_id("tenant", self.tenant)
        check_id("app name", self.app_name)
        check_id("user id", self.user_id)
        check_id("session id", self.session_id)
        check_key("session id", *self.columns, room=MAX_SESSION_KEY_BYTES)
        return self

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """The key as the values of its columns."""
        return self.tenant, self.app_name, self.user_id, self.session_id

    @property
    def of_user(self) -> dict[str, str]:
        """The names of its user, by column."""
        return {"tenant": self.tenant, "app_name": self.app_name, "user_id": self.user_id}

    @property
    def of_row(self) -> dict[str, str]:
        """Its names in a row of `sessions`, by column."""
        return self.of_user | {"id": self.session_id}

    @property
    def of_part(self) -> dict[str, str]:
        """Its names in a row of what belongs to it, by column."""
        return self.of_user | {"session_id": self.session_id}

    def check_state(self, state: StateChange) -> None:
        """Raise InvalidIdError if a key of the app's or user's state is too long for its index."""
        for name in (*state.user, *state.app):
            check_key("state key", *self.columns[:3], name)


@dataclass(frozen=True, slots=True)
class SessionRef:
    """A session as a loaded object knows it; without a pk it is looked up by its key."""

    key: SessionKey
    pk: int | None = None


@dataclass(frozen=True, slots=True)
class StateChange:
    """New values by scope, keys without their prefix."""

    session: Mapping[str, Any] = field(default_factory=dict[str, Any])
    user: Mapping[str, Any] = field(default_factory=dict[str, Any])
    app: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __bool__(self) -> bool:
        return bool(self.session or self.user or self.app)


NO_CHANGE: Final = StateChange()


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes moved out of an event, or an output too large for a row."""

    name: str
    kind: str
    mime_type: str | None
    data: bytes | Content
    part: JsonObject
    call: str = ""  # the tool call whose output it is
    marker: JsonObject | None = None  # its placeholder in the event

    @property
    def content(self) -> Content:
        """The bytes to save."""
        return BytesInMemory(self.data) if isinstance(self.data, bytes) else self.data


@dataclass(slots=True)
class Entry:
    """One event to append to a session, in the shape of a row.

    Not frozen like the other classes: that would cost a fifth of creating one.
    """

    event_id: str
    invocation_id: str
    author: str
    role: str
    content: str
    tool_calls: str | None  # JSON texts, as the columns take them
    event: str | None
    changes: str | None  # of a state-only entry: the state delta itself
    tokens: int
    timestamp: float
    counts: bool  # a message; control rows are kept and returned, never counted
    state: StateChange = NO_CHANGE
    state_only: bool = False
    compaction: bool = False
    opens_calls: tuple[str, ...] = ()
    answers_calls: tuple[str, ...] = ()  # by a person, or by an error
    responses: tuple[str, ...] = ()  # by anyone
    scope: str = ""  # the task it belongs to
    rewind: Rewind | None = None
    blobs: tuple[Blob, ...] = ()

    def begins_turn(self, current_invocation_id: str) -> bool:
        """Whether a new turn begins; a compaction or a state-only entry never begins one."""
        aside = self.state_only or self.compaction
        return self.invocation_id != current_invocation_id and not aside

    @property
    def created(self) -> datetime:
        """When it happened, as a datetime."""
        return readable_time(self.timestamp)

    def with_rewind_from(self, first_seq: int | None) -> Entry:
        """This entry, with the first seq of the invocation that it rewinds."""
        if self.rewind is None:
            return self
        return replace(self, rewind=replace(self.rewind, first_seq=first_seq))

    @property
    def is_plain(self) -> bool:
        """Whether one statement can append it: it reads no older rows and has no blobs."""
        special = self.compaction or self.opens_calls or self.rewind or self.blobs or self.scope
        return not special

    @property
    def is_long(self) -> bool:
        """Whether to append it may take long: a rewind marks all later rows, a blob is a file."""
        return self.rewind is not None or bool(self.blobs)


@dataclass(frozen=True, slots=True)
class Rewind:
    """Undo everything from an invocation on."""

    before_invocation_id: str
    first_seq: int | None = None  # of that invocation's rows, as far as the caller has them
    artifact_delta: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of appending an entry."""

    seq: int
    duplicate: bool = False  # it was there already: a retry
    state: Mapping[str, Any] | None = None  # the recomputed session state change of a rewind
    artifacts: Mapping[str, int] | None = None


class StoredMessage(NamedTuple):
    """One row of `messages`; JSON columns as text."""

    seq: int
    event_id: str
    invocation_id: str
    role: str
    author: str
    content: str
    tool_calls: str | None
    tokens: int
    timestamp: float
    event: str | None
    changes: str | None


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One row of `sessions`, with the states of its app and user."""

    pk: int
    public_id: str
    key: SessionKey
    title: str
    state: JsonObject
    app_state: JsonObject
    user_state: JsonObject
    next_seq: int
    total_tokens: int
    message_count: int
    turn_seq: int
    open_calls: JsonObject | None
    created: float
    updated: float
    last_activity: float

    @property
    def ref(self) -> SessionRef:
        """The reference that an append takes."""
        return SessionRef(self.key, self.pk)


@dataclass(frozen=True, slots=True)
class LoadedSession:
    """A session and its loaded rows."""

    session: StoredSession
    messages: list[StoredMessage]
    whole: bool
    window_after: int = 0  # rows up to this seq are here because they are pinned


_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


def readable_time(timestamp: float) -> datetime:
    """ADK's float as a datetime; the epoch if it is out of range."""
    try:
        return datetime.fromtimestamp(timestamp, UTC)
    except (ValueError, OverflowError, OSError):
        return _EARLIEST
