"""A guarantee, the parameters of one run of it, and the outcome."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import uuid4

from lango.adk.sessions.service import SessionServiceAdapter
from tests.support.databases import temporary_postgres, temporary_sqlite

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """A slice of a run: the third of eight is `3/8`."""

    number: int = 1
    total: int = 1

    @classmethod
    def parsed(cls, text: str) -> Part:
        """From `3/8`; raises ValueError for any other text."""
        number, _, total = text.partition("/")
        if not (number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
            raise ValueError(f"{text!r} is no part; the third of eight is 3/8")
        return cls(int(number), int(total))

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def count(self, whole: int) -> int:
        """The number of trials of this part; the parts add up to the whole."""
        return whole * self.number // self.total - whole * (self.number - 1) // self.total

    def seed(self, whole: int) -> int:
        """The seed of this part: derived from the run's seed, different for every part."""
        if self.total == 1:
            return whole
        return random.Random(f"{whole} {self}").randrange(2**32)

    def pick(self, trials: Sequence[T]) -> list[T]:
        """The trials of this part: every n-th."""
        return list(trials[self.number - 1 :: self.total])


WHOLE: Final = Part()


@dataclass(frozen=True, slots=True)
class Databases:
    """The two databases, as URLs; runs are kept apart in them by tenant."""

    sqlite: str
    postgres: str

    def each(self) -> dict[str, str]:
        """Both URLs, by the names that reports use."""
        return {"sqlite": self.sqlite, "postgresql": self.postgres}


@dataclass(frozen=True, slots=True)
class Run:
    """The parameters of one run of a guarantee."""

    count: int
    seed: int
    databases: Databases
    timed: bool = False  # whether a rate that is too low is a failure
    part: Part = WHOLE  # other than the whole only for a row that picks its own trials


@dataclass(slots=True)
class Outcome:
    """The result of a run: figures for the report, and all failures."""

    figures: list[str] = field(default_factory=list[str])
    failures: list[str] = field(default_factory=list[str])

    def note(self, figure: str) -> None:
        """Add a figure to the report."""
        self.figures.append(figure)

    def fail(self, failure: str) -> None:
        """Add a failure, as one line."""
        self.failures.append(" ".join(failure.split()))

    def expect(self, holds: object, failure: str) -> None:
        """Add a failure unless the condition holds."""
        if not holds:
            self.fail(failure)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One row of the fault table, and the function that tests it."""

    name: str
    promise: str
    full: int
    ci: int
    run: Callable[[Run], Outcome]
    parts: int = 1  # how many slices keep one under half an hour, on two cores
    picks: bool = False  # whether the row draws all trials and picks those of its part

    def share(
        self,
        count: int,
        seed: int,
        databases: Databases,
        *,
        part: Part = WHOLE,
        timed: bool = False,
    ) -> Run:
        """The parameters of one part of a run with this count and seed.

        A row that says nothing is asked for a share of the count, with a seed of the part's own.
        """
        if self.picks or part.total == 1:
            return Run(count, seed, databases, timed, part)
        if not part.count(count):
            raise ValueError(f"{self.name} has no {part.total} parts at a count of {count}")
        return Run(part.count(count), part.seed(seed), databases, timed)


def report(guarantee: Guarantee, outcome: Outcome) -> str:
    """The report line of an outcome."""
    figures = ", ".join(outcome.figures)
    if not outcome.failures:
        return f"{guarantee.name}: {guarantee.promise}: {figures} ok"
    more = f" (and {len(outcome.failures) - 1} more)" if len(outcome.failures) > 1 else ""
    return f"{guarantee.name}: FAILED: {outcome.failures[0]}{more}; {figures}"


def new_tenant() -> str:
    """A new tenant, unique to the caller."""
    return f"tenant-{uuid4().hex}"


def whole(url: str, tenant: str) -> SessionServiceAdapter:
    """A service that loads sessions without a token budget."""
    return SessionServiceAdapter(url, tenant=tenant, token_budget=None)


@asynccontextmanager
async def temporary_databases() -> AsyncGenerator[Databases]:
    """Both databases, created for this run."""
    async with temporary_sqlite() as sqlite, temporary_postgres() as postgres:
        yield Databases(sqlite, postgres)
