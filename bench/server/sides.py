"""The servers side by side: turns a second, CPU, the first byte and word, memory."""

from __future__ import annotations

from statistics import median, quantiles
from typing import TYPE_CHECKING, Final

from bench.report import Table, micros, millis
from bench.rounds import Interval, divide, estimate, interleave
from bench.server.contenders import ADK, BARE, OURS, contenders
from bench.server.load import Rounds
from bench.server.process import peak_memory
from bench.targets import Finding, Result, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.server.contenders import Contender
    from bench.server.load import Round

    Series = dict[str, list[float]]

WORDS: Final = 30
"""Deltas of an answer; one comes every 20 ms."""
CLIENTS: Final = {1: 4, 50: 2, 200: 1}
"""Concurrent clients, and the turns of each client in a round."""
_DELTAS_AT: Final = 50  # clients: enough to keep a core busy, and none waits long
_OF_ADK: Final = {1: 1.0, 50: 0.5, 200: 1.0}
"""Limits of a turn's CPU, × ADK's, by the number of clients."""
_LEVEL: Final = (
    *("server", "turns/s", "× ADK's", "CPU ms a turn", "× ADK's", "× bare"),
    *("PostgreSQL's CPU ms a turn", "peak MB", "failed turns"),
)
_FIRSTS: Final = (
    *("server", "first byte: median", "95th percentile", "× ADK's", "× bare"),
    *("first word: median", "95th percentile", "× ADK's", "× bare"),
)


async def side_by_side(clients: int, rounds: int) -> Result:
    """Start all servers, and measure them with this number of concurrent clients."""
    words = (WORDS, 0) if clients == _DELTAS_AT else (WORDS,)
    async with contenders() as servers:
        made = await _measured(servers, clients, rounds, words)
        parts = [_loads(made[WORDS], clients, rounds), _firsts(made[WORDS], clients, rounds)]
        if 0 in made:
            parts.append(_deltas(made[WORDS], made[0], rounds))
    tables = [table for part in parts for table in part.tables]
    return Result(tables, [finding for part in parts for finding in part.findings])


async def _measured(
    servers: Sequence[Contender], clients: int, count: int, words: Sequence[int]
) -> dict[int, dict[str, Rounds]]:
    """The rounds of all servers, by the words of an answer."""
    each = CLIENTS[clients]
    made = {n: {server.name: Rounds(server, clients, each, n) for server in servers} for n in words}
    runs = {(n, name): run for n, all_ in made.items() for name, run in all_.items()}
    await interleave({key: rounds.run for key, rounds in runs.items()}, count)
    for rounds in runs.values():
        del rounds.done[0]  # it warmed up
    return made


def _series(made: Mapping[str, Rounds], figure: Callable[[Round], float]) -> Series:
    return {name: list(map(figure, rounds.done)) for name, rounds in made.items()}


def _times(series: Series, other: str) -> dict[str, Interval]:
    return {name: estimate(divide(values, series[other])) for name, values in series.items()}


def _p95(times: Sequence[float]) -> float:
    return quantiles(times, n=20, method="inclusive")[-1]


def _load_name(clients: int) -> str:
    return f"{clients} client{'s' if clients > 1 else ''}"


def _loads(made: Mapping[str, Rounds], clients: int, count: int) -> Result:
    """The cost of turns."""
    where = _load_name(clients)
    table = Table(f"{where}: what a turn costs (median of {count} rounds)", _LEVEL)
    pace = _series(made, lambda round_: 1 / round_.per_turn.wall)
    used = _series(made, lambda round_: round_.per_turn.cpu)
    database = _series(made, lambda round_: round_.database_cpu)
    memory = {name: peak_memory(rounds.contender.server.pid) for name, rounds in made.items()}
    failed = {name: sum(round_.failed for round_ in rounds.done) for name, rounds in made.items()}
    paces, by_adk, by_bare = _times(pace, ADK), _times(used, ADK), _times(used, BARE)
    for name in made:
        table.add(
            *(name, f"{median(pace[name]):,.1f}", paces[name], millis(median(used[name]))),
            *(by_adk[name], by_bare[name]),
            *("" if name == BARE else millis(median(database[name])), f"{memory[name]:,.0f}"),
            failed[name],
        )
    held = Interval.exact(memory[OURS] / memory[ADK])
    findings = [
        Finding(Target(f"{where}: turns/s, × ADK's", 1, at_least=True), paces[OURS]),
        Finding(Target(f"{where}: CPU of a turn, × ADK's", _OF_ADK[clients]), by_adk[OURS]),
        Finding(Target(f"{where}: CPU of a turn, × bare", 1), by_bare[OURS]),
        Finding(Target(f"{where}: memory, × ADK's", 1), held),
        Finding(Target(f"{where}: turns that fail", 0, unit=""), Interval.exact(failed[OURS])),
    ]
    return Result([table], findings)


def _firsts(made: Mapping[str, Rounds], clients: int, count: int) -> Result:
    """The seconds until a client gets the first byte, and the first word."""
    where = _load_name(clients)
    table = Table(f"{where}: until something comes, ms (median of {count} rounds)", _FIRSTS)
    middle = [_series(made, lambda round_: median(round_.first_byte))]
    middle.append(_series(made, lambda round_: median(round_.first_word)))
    late = [_series(made, lambda round_: _p95(round_.first_byte))]
    late.append(_series(made, lambda round_: _p95(round_.first_word)))
    times = [(_times(series, ADK), _times(series, BARE)) for series in late]
    for name in made:
        cells: list[object] = []
        for half, tail, (by_adk, by_bare) in zip(middle, late, times, strict=True):
            cells += [millis(median(half[name])), millis(median(tail[name]))]
            cells += [by_adk[name], by_bare[name]]
        table.add(name, *cells)
    findings = [
        Finding(Target(f"{where}: first {what}, 95th percentile, × ADK's", 1), by_adk[OURS])
        for what, (by_adk, _) in zip(("byte", "word"), times, strict=True)
    ]
    if clients > 1:
        first = Target(f"{where}: first word, 95th percentile, × bare", 1)
        findings.append(Finding(first, times[1][1][OURS]))
    return Result([table], findings)


def _deltas(streamed: Mapping[str, Rounds], at_once: Mapping[str, Rounds], count: int) -> Result:
    """The cost of a delta: turns with deltas beside turns whose model answers at once."""
    title = f"{_load_name(_DELTAS_AT)}: the server's CPU, µs (median of {count} rounds)"
    columns = ("server", "turn whose model answers at once", "each of its deltas", "× ADK's")
    table = Table(title, columns)
    without = _series(at_once, lambda round_: round_.per_turn.cpu)
    used = {
        name: [(more - less) / WORDS for more, less in zip(series, without[name], strict=True)]
        for name, series in _series(streamed, lambda round_: round_.per_turn.cpu).items()
    }
    times = _times(used, ADK)
    for name in used:
        table.add(name, micros(median(without[name])), micros(median(used[name])), times[name])
    target = Target(f"{_load_name(_DELTAS_AT)}: CPU of a delta, × ADK's", 1)
    return Result([table], [Finding(target, times[OURS])])
