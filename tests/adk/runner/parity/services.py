"""Services on a database or in memory, and steps of a client; importable by a new process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService

from lango.adk.artifacts import SqlArtifactService
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.sessions.session import SessionAdapter
from lango.core.context.tokens import message_tokens
from lango.store.sessions.store import SqlSessionStore
from tests.adk.runner.parity.apps import APP
from tests.adk.runner.parity.features import FEATURES, Feature
from tests.adk.runner.parity.steps import SESSION, USER, Notes, Step, WholeSession, load, perform

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from google.adk.artifacts.base_artifact_service import BaseArtifactService
    from google.adk.events.event import Event
    from google.adk.sessions.base_session_service import BaseSessionService

# A window of some turns: small talk is about eighty tokens a turn, filling twice that.
BUDGET = 400


@dataclass(frozen=True)
class Stored:
    """Our service on a database; every use opens it anew."""

    url: str
    tenant: str
    token_budget: int | None = BUDGET

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[tuple[BaseSessionService, BaseArtifactService]]:
        """Fresh services, closed at the end."""
        async with SqlSessionStore(self.url) as store:
            sessions = SessionServiceAdapter(
                store,
                tenant=self.tenant,
                token_budget=self.token_budget,
                root_agent_name="root",
            )
            yield sessions, SqlArtifactService(store, tenant=self.tenant)


@dataclass(frozen=True)
class InMemory:
    """ADK's own services, which live as long as this object."""

    sessions: InMemorySessionService = field(default_factory=InMemorySessionService)
    artifacts: InMemoryArtifactService = field(default_factory=InMemoryArtifactService)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[tuple[BaseSessionService, BaseArtifactService]]:
        """The same services each time."""
        yield self.sessions, self.artifacts


Services = Stored | InMemory


@dataclass
class Snapshot:
    """What is found after a step: by a windowed load, and in the whole session."""

    notes: Notes = field(default_factory=Notes)
    window: list[Event] = field(default_factory=list["Event"])
    whole: list[Event] = field(default_factory=list["Event"])
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    user_state: dict[str, Any] = field(default_factory=dict[str, Any])
    artifacts: dict[str, list[str | None]] = field(default_factory=dict[str, list[str | None]])
    tokens: int = 0


async def create(services: Services, state: dict[str, Any] | None = None) -> None:
    """Begin the session."""
    async with services.open() as (sessions, _):
        await sessions.create_session(
            app_name=APP, user_id=USER, session_id=SESSION, state=state or {}
        )


async def take(services: Services, feature: Feature, notes: Notes, *steps: Step) -> Snapshot:
    """Do some steps with services and Runners made for them, and look at the result."""
    async with services.open() as (sessions, artifacts):
        notes.requests = []
        for step in steps:
            runner = Runner(
                app=feature.build(),
                session_service=sessions,
                artifact_service=artifacts if feature.artifacts else None,
            )
            await perform(step, runner, notes)
        return await _look(sessions, artifacts, notes)


def take_alone(services: Stored, name: str, notes: Notes, *steps: Step) -> Snapshot:
    """The same as a whole program: what a new process runs."""
    return asyncio.run(take(services, FEATURES[name], notes, *steps))


async def _look(
    sessions: BaseSessionService, artifacts: BaseArtifactService, notes: Notes
) -> Snapshot:
    window = await load(sessions, APP)
    async with WholeSession(sessions):
        whole = await load(sessions, APP)
    return Snapshot(
        notes=notes,
        window=list(window.events),
        whole=list(whole.events),
        state=dict(window.state),
        user_state=await sessions.get_user_state(app_name=APP, user_id=USER),
        artifacts=await _artifacts(artifacts),
        tokens=sum(map(message_tokens, whole.history)) if isinstance(whole, SessionAdapter) else 0,
    )


async def _artifacts(service: BaseArtifactService) -> dict[str, list[str | None]]:
    """Every version of every artifact, None for one that a rewind made inaccessible."""
    found: dict[str, list[str | None]] = {}
    scope = {"app_name": APP, "user_id": USER, "session_id": SESSION}
    for name in await service.list_artifact_keys(**scope):
        for version in await service.list_versions(filename=name, **scope):
            part = await service.load_artifact(filename=name, version=version, **scope)
            found.setdefault(name, []).append(part.text if part else None)
    return found
