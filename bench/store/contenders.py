"""The interface of a contender, and helpers for the two ADK session services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from google.adk.sessions.base_session_service import GetSessionConfig

from bench.events import APP, USER, invocation_id, model_event, text, user_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.adk.events.event import Event
    from google.adk.sessions.base_session_service import BaseSessionService
    from google.adk.sessions.session import Session


@dataclass(frozen=True, slots=True)
class Fill:
    """Messages to put into each new session in bulk, as the contender itself would write them."""

    messages: int
    size: int
    kind: Literal["alternating", "user", "model"] = "alternating"


class Writer(Protocol):
    """Appends user messages to one session."""

    def stage(self, count: int, size: int) -> None:
        """Make the messages of the next appends, outside the timed part."""
        ...

    async def append(self) -> None:
        """Append the next staged message."""
        ...


class Contender(Protocol):
    """A store under measurement."""

    @property
    def name(self) -> str: ...
    @property
    def message_table(self) -> str:
        """The table that holds messages, for its size on disk."""
        ...

    async def close(self) -> None: ...

    async def sessions(self, count: int, fill: Fill | None = None) -> Sequence[str]:
        """New sessions, by id."""
        ...

    async def writer(self, session: str) -> Writer: ...

    async def load(self, session: str) -> int:
        """Load the messages that the next turn needs; return their number."""
        ...


def names(contenders: Iterable[Contender]) -> list[str]:
    """The names of the contenders."""
    return [contender.name for contender in contenders]


class ServiceWriter:
    """Appends through ADK's interface, as a Runner does."""

    def __init__(self, service: BaseSessionService, session: Session) -> None:
        self._service = service
        self._session = session
        self._staged: list[Event] = []

    def stage(self, count: int, size: int) -> None:
        """Make the events of the next appends, two in a turn: what a turn has at the least."""
        content = text(size)
        turns = [invocation_id() for _ in range(count // 2 + 1)]
        self._staged = [user_event(content, turns[i // 2]) for i in range(count)]

    async def append(self) -> None:
        """Append the next staged event."""
        await self._service.append_event(self._session, self._staged.pop())


async def service_writer(service: BaseSessionService, session: str) -> ServiceWriter:
    """A writer on a session that was loaded once, without its history."""
    loaded = await service.get_session(
        app_name=APP,
        user_id=USER,
        session_id=session,
        config=GetSessionConfig(num_recent_events=1),
    )
    assert loaded is not None
    return ServiceWriter(service, loaded)


async def service_load(
    service: BaseSessionService, session: str, config: GetSessionConfig | None = None
) -> int:
    """Load through ADK's interface; return the number of events."""
    loaded = await service.get_session(
        app_name=APP, user_id=USER, session_id=session, config=config
    )
    assert loaded is not None
    return len(loaded.events)


async def template_session(service: BaseSessionService, size: int) -> Session:
    """A session with one user and one model message, for a bulk fill to copy."""
    session = await service.create_session(app_name=APP, user_id=USER)
    turn = invocation_id()
    await service.append_event(session, user_event(text(size), turn))
    await service.append_event(session, model_event(text(size), turn))
    return session
