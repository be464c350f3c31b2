"""Round trips, statements and bytes of an append and of a load, counted on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from bench.events import APPENDED_BYTES
from bench.pg import with_port
from bench.report import Table
from bench.rounds import Interval
from bench.store.load import LONGEST, SHORTEST
from bench.store.wire import WireProxy
from bench.targets import Finding, Result, Target

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bench.store.contenders import Contender
    from bench.store.load import Sessions
    from bench.store.wire import Traffic

APPEND_TRIPS: Final = Target("round trips of an append", 1, unit="")
LOAD_TRIPS: Final = Target("round trips of a load", 2, unit="")
BYTES: Final = Target("bytes of a load at 50,000 vs 100", 1.1)

_TO_WARM_UP: Final = 10  # statements are prepared once per connection, not once per operation
_COUNTED: Final = 10


@dataclass(frozen=True, slots=True)
class Counted:
    """The traffic of one operation."""

    round_trips: float
    statements: float
    sent: float
    received: float


async def _count(operation: Callable[[], Awaitable[object]], traffic: Traffic) -> Counted:
    for _ in range(_TO_WARM_UP):
        await operation()
    traffic.reset()
    for _ in range(_COUNTED):
        await operation()
    return Counted(
        traffic.round_trips / _COUNTED,
        traffic.statements / _COUNTED,
        traffic.sent / _COUNTED,
        traffic.received / _COUNTED,
    )


async def count_all(
    openers: Mapping[str, Callable[[str], Awaitable[Contender]]], url: str, sessions: Sessions
) -> Result:
    """Each contender once more, through the proxy."""
    counts: dict[tuple[str, int | None], Counted] = {}
    server = urlsplit(url)
    async with WireProxy(server.hostname or "127.0.0.1", server.port or 5432) as proxy:
        for name, opener in openers.items():
            contender = await opener(with_port(url, proxy.port))
            [session] = await contender.sessions(1)
            writer = await contender.writer(session)
            writer.stage(_TO_WARM_UP + _COUNTED, APPENDED_BYTES)
            counts[name, None] = await _count(writer.append, proxy.traffic)
            for length in (SHORTEST, LONGEST):
                if found := sessions.get((name, length)):
                    counts[name, length] = await _count(
                        lambda c=contender, s=found: c.load(s), proxy.traffic
                    )
            await contender.close()
    ours = list(openers)[-1]
    return Result([_table(counts)], _findings(counts, ours))


def _table(counts: Mapping[tuple[str, int | None], Counted]) -> Table:
    table = Table(
        "On the wire, per operation",
        ("store, operation", "round trips", "statements", "bytes sent", "bytes received"),
    )
    for (name, length), counted in counts.items():
        what = "append" if length is None else f"load at {length:,}"
        table.add(
            f"{name}, {what}",
            f"{counted.round_trips:g}",
            f"{counted.statements:g}",
            f"{counted.sent:,.0f}",
            f"{counted.received:,.0f}",
        )
    return table


def _findings(counts: Mapping[tuple[str, int | None], Counted], ours: str) -> list[Finding]:
    short, long = counts[ours, SHORTEST], counts[ours, LONGEST]
    return [
        Finding(APPEND_TRIPS, Interval.exact(counts[ours, None].round_trips)),
        Finding(LOAD_TRIPS, Interval.exact(max(short.round_trips, long.round_trips))),
        Finding(BYTES, Interval.exact(long.received / short.received)),
    ]
