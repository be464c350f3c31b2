"""What a guarantee is, what one run of it is told, and what comes of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from lango.adk.session_service import SessionServiceAdapter
from lango.testing.databases import temporary_postgres, temporary_sqlite


@dataclass(frozen=True, slots=True)
class Places:
    """The two databases, as URLs; runs are kept apart in them by tenant."""

    sqlite: str
    postgres: str

    def each(self) -> dict[str, str]:
        """Both, by the name reports use."""
        return {"sqlite": self.sqlite, "postgresql": self.postgres}


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a guarantee is asked to do."""

    count: int
    seed: int
    places: Places
    timed: bool = False  # whether a rate that is too low is a failure


@dataclass(slots=True)
class Outcome:
    """What a run found: figures for the report, and everything that did not hold."""

    figures: list[str] = field(default_factory=list[str])
    failures: list[str] = field(default_factory=list[str])

    def note(self, figure: str) -> None:
        """Add a figure to the report."""
        self.figures.append(figure)

    def fail(self, failure: str) -> None:
        """Add something that did not hold, as one line."""
        self.failures.append(" ".join(failure.split()))

    def expect(self, holds: object, failure: str) -> None:
        """Add a failure unless the condition holds."""
        if not holds:
            self.fail(failure)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One row of the fault table, and the function that tries it."""

    name: str
    promise: str
    full: int
    ci: int
    run: Callable[[Run], Outcome]


def report(guarantee: Guarantee, outcome: Outcome) -> str:
    """The one line that says how it went."""
    figures = ", ".join(outcome.figures)
    if not outcome.failures:
        return f"{guarantee.name}: {guarantee.promise}: {figures} ok"
    more = f" (and {len(outcome.failures) - 1} more)" if len(outcome.failures) > 1 else ""
    return f"{guarantee.name}: FAILED: {outcome.failures[0]}{more}; {figures}"


def new_tenant() -> str:
    """A tenant nobody else uses."""
    return f"tenant-{uuid4().hex}"


def whole(url: str, tenant: str) -> SessionServiceAdapter:
    """A service that loads sessions uncut."""
    return SessionServiceAdapter(url, tenant=tenant, token_budget=None)


@asynccontextmanager
async def temporary_places() -> AsyncGenerator[Places]:
    """Both databases, made for this run."""
    async with temporary_sqlite() as sqlite, temporary_postgres() as postgres:
        yield Places(sqlite, postgres)
