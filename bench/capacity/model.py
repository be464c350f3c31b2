"""How many cores, connections, bytes and databases a rate of turns needs.

The costs are measured (`capacity_figures.py`). The workload and the limits of one server are
assumptions: an operator replaces them by their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HOUR: Final = 3_600.0
DAY: Final = 24 * HOUR
MAX_DATABASES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one turn, or of one part of a turn."""

    worker_cpu: float = 0.0  # seconds
    server_cpu: float = 0.0  # seconds, of the process that accepts the turn and streams its events
    database_cpu: float = 0.0  # seconds, of PostgreSQL, without notices and writes of logs
    wal: float = 0.0  # bytes
    kept: float = 0.0  # bytes with indexes, in tables that lango does not trim
    log: float = 0.0  # bytes with indexes, in `turn_events`, until its retention is over
    notices: float = 0.0  # NOTIFY, without those of logs

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: Cost) -> Cost:
        return self + other * -1.0

    def __mul__(self, factor: float) -> Cost:
        return Cost(*(getattr(self, f.name) * factor for f in fields(self)))


@dataclass(frozen=True, slots=True)
class TurnCosts:
    """The cost of a turn by its parts."""

    first_call: Cost  # a whole turn with one model call that answers at once
    step: Cost  # one more model call, and the tool run before it
    delta: Cost  # one more event of the stream

    def of(self, workload: Workload) -> Cost:
        """A whole turn."""
        return self.first_call + self.step * workload.tool_steps + self.delta * workload.deltas


@dataclass(frozen=True, slots=True)
class Notices:
    """What a NOTIFY costs the database."""

    cpu: float  # seconds, without listeners
    cpu_per_listener: float  # seconds
    most: float  # a second: their commits exclude each other


@dataclass(frozen=True, slots=True)
class LogWrites:
    """The statements by which a worker writes the logs of all its turns, each with a notice."""

    most: float  # a second, of one worker
    cpu: float  # seconds of the database, without what each event costs


@dataclass(frozen=True, slots=True)
class Workload:
    """A turn of the service that is planned for. Assumed."""

    tool_steps: int = 1  # so the model is asked twice
    deltas: int = 40  # events of the stream: 50 ms apart, an answer that flows for 2 s
    model_median: float = 6.0  # seconds that a turn waits for its models, lognormal
    model_sigma: float = 0.8  # the 95th percentile is 22 s

    @property
    def model_mean(self) -> float:
        """Seconds that a turn waits for its models, on average."""
        return self.model_median * math.exp(self.model_sigma**2 / 2)


@dataclass(frozen=True, slots=True)
class Processes:
    """How processes are used. The first three are lango's defaults."""

    concurrency: int = 100  # turns of a worker
    streams: int = 1_000  # of a server
    connections: int = 17  # pool_size + pool_overflow + a listener + a heartbeat
    slots_used: float = 0.5  # on average: the rest is for bursts
    core_used: float = 0.5  # a process is one core
    least: int = 2  # of each kind, so that one can be lost


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """The limits of one PostgreSQL server. Assumed: a large machine with a fast disk."""

    cores: float = 32.0
    cores_used: float = 0.6
    connections: int = 500
    wal: float = 100e6  # bytes a second that the disk and the replicas take
    disk: float = 20e12  # bytes
    days: float = 90.0  # that sessions are kept
    event_retention: float = DAY  # seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """What a rate of turns needs in all, and of each database."""

    rate: float  # turns a second
    concurrent: float  # turns, on average
    workers: int
    servers: int
    process_cores: float  # used by workers and servers
    database_cores: float  # used, over all databases
    notice_cores: float  # of these, to carry notices
    databases: int
    connections: int  # over all databases, without a pooler
    wal: float  # bytes a second
    kept_per_day: float  # bytes
    log: float  # bytes that `turn_events` holds
    shares: Mapping[str, float]  # of one server's limits, if it were the only database

    @property
    def processes(self) -> int:
        """Workers and servers."""
        return self.workers + self.servers

    @property
    def breaks_first(self) -> str:
        """The limit of one database server that is met first."""
        return max(self.shares, key=lambda name: self.shares[name])


class CapacityModel:
    """Plans for one kind of turn and one kind of server."""

    def __init__(
        self,
        costs: TurnCosts,
        notices: Notices,
        writes: LogWrites,
        *,
        workload: Workload | None = None,
        processes: Processes | None = None,
        server: DatabaseServer | None = None,
    ) -> None:
        self.workload = workload or Workload()
        self.processes = processes or Processes()
        self.server = server or DatabaseServer()
        self.turn = costs.of(self.workload)
        self.notices = notices
        self.writes = writes

    def plan(self, turns_per_hour: float) -> Plan:
        """The plan for a number of turns per hour."""
        rate, turn = turns_per_hour / HOUR, self.turn
        concurrent = rate * self.workload.model_mean
        workers = self._processes(concurrent / self.processes.concurrency, rate * turn.worker_cpu)
        servers = self._processes(concurrent / self.processes.streams, rate * turn.server_cpu)
        whole = _Part(rate, workers, servers)
        databases = self._databases(whole)
        one = whole.divided(databases)
        return Plan(
            rate=rate,
            concurrent=concurrent,
            workers=workers,
            servers=servers,
            process_cores=rate * (turn.worker_cpu + turn.server_cpu),
            database_cores=databases * self._database_cores(one),
            notice_cores=databases * self._notice_cores(one),
            databases=databases,
            connections=(workers + servers) * self.processes.connections,
            wal=rate * turn.wal,
            kept_per_day=rate * DAY * turn.kept,
            log=rate * self.server.event_retention * turn.log,
            shares=self._shares(whole),
        )

    def _processes(self, full: float, cores: float) -> int:
        """Processes that are neither out of slots nor of CPU."""
        needed = max(full / self.processes.slots_used, cores / self.processes.core_used)
        return max(math.ceil(needed), self.processes.least)

    def _log_writes(self, part: _Part) -> float:
        """Writes of logs a second: a worker writes those of all its turns together."""
        return min(part.rate * self.workload.deltas, part.workers * self.writes.most)

    def _notices(self, part: _Part) -> float:
        """Notices a second."""
        return part.rate * self.turn.notices + self._log_writes(part)

    def _notice_cores(self, part: _Part) -> float:
        """Cores that carry notices: each wakes every process."""
        listeners = part.workers + part.servers
        each = self.notices.cpu + listeners * self.notices.cpu_per_listener
        return self._notices(part) * each

    def _database_cores(self, part: _Part) -> float:
        writing = self._log_writes(part) * self.writes.cpu
        return part.rate * self.turn.database_cpu + writing + self._notice_cores(part)

    def _shares(self, part: _Part) -> dict[str, float]:
        """The parts of one server's limits that this takes."""
        server, turn = self.server, self.turn
        kept = turn.kept * DAY * server.days + turn.log * server.event_retention
        connections = (part.workers + part.servers) * self.processes.connections
        return {
            "cores": self._database_cores(part) / (server.cores * server.cores_used),
            "connections": connections / server.connections,
            "WAL": part.rate * turn.wal / server.wal,
            "disk": part.rate * kept / server.disk,
            "commits with a notice": self._notices(part) / self.notices.most,
        }

    def _databases(self, whole: _Part) -> int:
        """The fewest databases that all stay within their limits.

        Connections do not count: a pooler is cheaper than a second database.
        """
        for count in range(1, MAX_DATABASES):
            shares = self._shares(whole.divided(count))
            if all(share <= 1 for name, share in shares.items() if name != "connections"):
                return count
        raise ValueError(f"{MAX_DATABASES:,} databases would not do.")


@dataclass(frozen=True, slots=True)
class _Part:
    """The turns a second of one database, and the processes on it."""

    rate: float
    workers: float
    servers: float

    def divided(self, count: int) -> _Part:
        """An equal part of it."""
        return _Part(self.rate / count, self.workers / count, self.servers / count)
