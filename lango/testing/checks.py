"""A conformance check: a named function that tests one promise of a session service.

A check gets a `Subject`: the service of one tenant, and a way to open a second instance of it.
Each check runs for two tenants concurrently with the same app, user and session ids, so that a
leak between tenants fails a check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Literal, TypeVar, cast

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types

from lango.testing.same import differences

Requirement = Literal["busy", "rewind", "shared", "state_only", "tenants", "windows"]
"""What a check requires of a service beyond ADK's contract.

- `tenants`: the factory's tenants are kept apart;
- `shared`: two instances of one tenant work on the same data;
- `state_only`: an event with only a state delta changes the state and is not stored as an event;
- `rewind`: events undone by a rewind are not loaded again;
- `windows`: a load is truncated to a token budget unless the whole session is requested;
- `busy`: while a turn owns the session, other writers are refused.
"""

ServiceFactory = Callable[[str], AbstractAsyncContextManager[BaseSessionService]]
"""Opens the service of a tenant; the end of the context closes it."""

APP: Final = "app"
USER: Final = "user"
SESSION: Final = "session"
TENANTS: Final = ("tenant-a", "tenant-b")

E = TypeVar("E", bound=BaseException)


class ConformanceError(AssertionError):
    """The service does not do what the check requires."""


def equal(actual: Any, expected: Any, label: str) -> None:
    """Raise unless both are equal, including the types of numbers."""
    problems = differences(expected, actual)
    if problems:
        raise ConformanceError(f"{label}: " + "; ".join(problems[:5]))


def true(condition: object, problem: str) -> None:
    """Raise unless the condition holds."""
    if not condition:
        raise ConformanceError(problem)


async def raises(kind: type[E], doing: Awaitable[object], label: str) -> E:
    """The error of this kind that `doing` must raise."""
    try:
        await doing
    except kind as error:
        return error
    raise ConformanceError(f"{label}: no {kind.__name__} was raised")


@dataclass
class Subject:
    """One tenant's service under test, with helpers for common steps."""

    service: BaseSessionService
    tenant: str
    factory: ServiceFactory
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def another(self) -> AbstractAsyncContextManager[BaseSessionService]:
        """A second instance of this tenant's service."""
        return self.factory(self.tenant)

    async def create(
        self,
        session_id: str | None = SESSION,
        *,
        app: str = APP,
        user: str = USER,
        state: dict[str, Any] | None = None,
    ) -> Session:
        """A new session."""
        return await self.service.create_session(
            app_name=app, user_id=user, session_id=session_id, state=state
        )

    async def find(
        self,
        session_id: str = SESSION,
        *,
        app: str = APP,
        user: str = USER,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """The session, or None."""
        return await self.service.get_session(
            app_name=app, user_id=user, session_id=session_id, config=config
        )

    async def get(self, session_id: str = SESSION, **names: Any) -> Session:
        """The session, which must exist."""
        session = await self.find(session_id, **names)
        true(session is not None, f"session {session_id!r} is missing")
        return cast("Session", session)

    def event(
        self, text: str | None = None, *, state: dict[str, Any] | None = None, **fields: Any
    ) -> Event:
        """An event of this tenant; its text, if any, starts with the tenant's name."""
        number = next(self._numbers)
        content = None
        if text is not None:
            content = types.Content(role="user", parts=[types.Part(text=f"{self.tenant} {text}")])
        defaults: dict[str, Any] = {
            "id": f"event-{number}",
            "invocation_id": f"invocation-{number}",
            "author": "user",
            "timestamp": 1_760_000_000.0 + number,
            "content": content,
            "actions": EventActions(state_delta=state or {}),
        }
        return Event(**{**defaults, **fields})

    async def say(self, session: Session, text: str, **fields: Any) -> Event:
        """Append a user's text."""
        return await self.service.append_event(session, self.event(text, **fields))

    async def texts(self, session_id: str = SESSION, **names: Any) -> list[str]:
        """The texts of the session, loaded now, without the tenant's name."""
        return texts_of(await self.get(session_id, **names), self.tenant)


def texts_of(session: Session, tenant: str) -> list[str]:
    """The texts of a session's events; a text of another tenant is an error."""
    texts = [
        part.text
        for event in session.events
        for part in (event.content.parts if event.content else None) or []
        if part.text is not None
    ]
    strange = [text for text in texts if not text.startswith(f"{tenant} ")]
    true(not strange, f"{tenant} sees texts that are not its own: {strange[:3]}")
    return [text.removeprefix(f"{tenant} ") for text in texts]


Body = Callable[[Subject], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """One promise and its test; call it with a factory."""

    name: str
    promise: str
    requires: frozenset[Requirement]
    body: Body

    async def __call__(self, factory: ServiceFactory, tenants: Sequence[str] = TENANTS) -> None:
        """Run it for all tenants concurrently; raises ConformanceError or the service's error."""
        results = await asyncio.gather(
            *(self._for_tenant(factory, tenant) for tenant in tenants), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _for_tenant(self, factory: ServiceFactory, tenant: str) -> None:
        async with factory(tenant) as service:
            await self.body(Subject(service, tenant, factory))


def check(*requires: Requirement) -> Callable[[Body], Check]:
    """Make a check from a function: its name is the check's, its docstring the promise."""

    def make(body: Body) -> Check:
        name = getattr(body, "__name__", "check")
        return Check(name, (body.__doc__ or "").strip(), frozenset(requires), body)

    return make
