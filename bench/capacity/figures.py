"""The measured inputs of the capacity model, each with the command that measured it.

Two cores, PostgreSQL 15 on the same machine. CPU is what the kernel counts for a process. That of
our processes was measured on a quiet machine, that of PostgreSQL while other work kept both cores
busy, which makes it larger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from bench.capacity.arrivals import Lognormal
from bench.capacity.model import Cost, LogWrites, Notices, TurnCosts


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value, in the unit that its name says."""

    value: float
    command: str


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """What one turn used."""

    worker_ms: Figure
    database_ms: Figure
    wal_bytes: Figure
    kept_bytes: Figure  # with indexes, of all tables but `turns` and `turn_events`
    log_bytes: Figure  # with indexes, of `turn_events`
    notices: Figure

    @property
    def cost(self) -> Cost:
        """In the model's units. What its notices cost PostgreSQL is counted apart."""
        each = NOTICE_US.value + _LISTENERS * NOTICE_LISTENER_US.value
        noticing = self.notices.value * each / 1e6
        return Cost(
            worker_cpu=self.worker_ms.value / 1e3,
            database_cpu=self.database_ms.value / 1e3 - noticing,
            wal=self.wal_bytes.value,
            kept=self.kept_bytes.value + TURN_ROW_BYTES.value,
            log=self.log_bytes.value,
            notices=self.notices.value,
        )


_MEASURE: Final = "python -m bench capacity --measure"
_SERVER: Final = "make bench AREA=server"
_TURNS: Final = "make bench AREA=turns"
_SUSTAINED: Final = "python -m bench sustained --seconds 600 --rate 30"
_LISTENERS: Final = 3
"""Processes that heard each notice while turns were measured."""


def _measured(worker: Figure, *values: float) -> TurnFigures:
    return TurnFigures(worker, *(Figure(value, _MEASURE) for value in values))


# An agent with the plugins that it is served with; its model answers at once.
ONE_CALL: Final = _measured(Figure(11.5, _TURNS), 9.62, 12_659, 2_936, 1_434, 3.88)
# Two model calls with a tool run between them. Of the worker, the ratio to one call is measured.
WITH_TOOL: Final = _measured(
    Figure(11.5 * 48.22 / 28.04, _MEASURE), 15.20, 16_903, 5_625, 1_748, 4.35
)
# One call, and ten words 50 ms apart.
TEN_WORDS: Final = _measured(Figure(11.5 + 10 * 0.572, _SERVER), 13.42, 16_562, 3_004, 3_925, 5.14)
WORDS: Final = 10

SERVED_TURN_MS: Final = Figure(15.7, _SERVER)
"""CPU of `lango serve` for a turn without words, its worker inside."""
TURN_ROW_BYTES: Final = Figure(1_770, _SUSTAINED)
"""Of `turns`, with indexes, where autovacuum keeps up."""

LOG_ROW_US: Final = Figure(22.6, _TURNS)
"""CPU of PostgreSQL for each event of a log, where one statement writes those of 500 turns."""
LOG_WRITES_PER_SECOND: Final = Figure(20.0, "1 / GATHER of turns/log/writer.py, from 10 turns on")
"""Of one worker, for all its turns."""

NOTICE_US: Final = Figure(60.0, _MEASURE)
NOTICE_LISTENER_US: Final = Figure(34.0, _MEASURE)
"""CPU of PostgreSQL for each process that hears a notice: the slope from 1 to 48 listeners."""
NOTICES_PER_SECOND: Final = Figure(5_607.0, _MEASURE)
"""By eight senders to one listener, on two cores that senders and listener shared."""
DISPATCH_MS: Final = Figure(22.0, _SUSTAINED)
"""From submit to start in a worker with free slots on a busy machine: median of the minutes."""
DISPATCH_P95_MS: Final = Figure(80.0, _SUSTAINED)


def _one_delta() -> Cost:
    """A delta that is written alone, as in a worker that runs few turns."""
    return (TEN_WORDS.cost - ONE_CALL.cost) * (1 / WORDS)


def turn_costs() -> TurnCosts:
    """The parts of a turn, from the differences between the measured turns."""
    serving = (SERVED_TURN_MS.value - ONE_CALL.worker_ms.value) / 1e3
    delta = replace(_one_delta(), database_cpu=LOG_ROW_US.value / 1e6, kept=0.0, notices=0.0)
    return TurnCosts(
        first_call=ONE_CALL.cost + Cost(server_cpu=serving),
        step=WITH_TOOL.cost - ONE_CALL.cost,
        delta=delta,
    )


def log_writes() -> LogWrites:
    """What a write of logs costs beyond its events and its notice."""
    alone = _one_delta().database_cpu - LOG_ROW_US.value / 1e6
    return LogWrites(LOG_WRITES_PER_SECOND.value, max(alone, 0.0))


def notices() -> Notices:
    """What notices cost."""
    per_listener = NOTICE_LISTENER_US.value / 1e6
    return Notices(NOTICE_US.value / 1e6, per_listener, NOTICES_PER_SECOND.value)


def dispatch() -> Lognormal:
    """The time from submit to start in a worker that has a free slot."""
    return Lognormal(DISPATCH_MS.value / 1e3, DISPATCH_P95_MS.value / 1e3)
