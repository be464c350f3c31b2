"""The cost of a durable turn beside its agent, by step: round trips, statements, CPU."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from bench.events import APP
from bench.pg import own_database, with_port
from bench.report import Table, micros
from bench.rounds import Interval
from bench.store.wire import Traffic, WireProxy
from bench.targets import Finding, Result, Target
from bench.turns.worker_context import BenchSettings, queue, worker_context
from lango.core.turns.events import Completed, MessageDelta
from lango.store.turns.log import LogWrite
from lango.store.turns.workers import Worker, Workers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from bench.turns.worker_context import WorkerContext

TARGETS: Final = {
    step: Target(f"round trips of a {step}", 2, unit="") for step in ("submit", "claim", "close")
}
_WORKER: Final = Worker("wrk_bench", {APP: "nothing"})
_TO_WARM_UP: Final = 10  # statements are prepared once per connection, not once per operation
_COUNTED: Final = 10
_TIMED: Final = 40
_NEVER: Final = 3_600.0  # seconds: no heartbeats


@dataclass(frozen=True, slots=True)
class _Step:
    round_trips: int
    statements: int
    cpu: float


class _Steps:
    """The cost of each step of some turns."""

    def __init__(self, traffic: Traffic | None = None) -> None:
        self._traffic = traffic or Traffic()
        self.taken: dict[str, list[_Step]] = {}

    async def take(self, name: str, work: Awaitable[Any]) -> Any:
        """Do one step."""
        self._traffic.reset()
        began = time.process_time()
        result = await work
        used = time.process_time() - began
        step = _Step(self._traffic.round_trips, self._traffic.statements, used)
        self.taken.setdefault(name, []).append(step)
        return result


async def _turn(context: WorkerContext, session: str, steps: _Steps) -> None:
    """Run one turn step by step."""
    heads, log = context.engine.queue.heads, context.turns.log
    await steps.take("submit", context.submit(session))
    head = (await steps.take("look for work", heads([APP])))[0]
    claim = await steps.take("claim", context.engine.queue.claim(head.session_pk, _WORKER))
    delta = LogWrite(claim, [MessageDelta("m", "word")])
    await steps.take("write to the log, of any number of turns", log.append_many([delta]))
    await steps.take("read on in the log", log.read("", claim.turn.id, after=2))
    await steps.take("look which claims are held", context.engine.queue.held_by(_WORKER.id))
    await steps.take("close", context.engine.queue.close(claim, Completed()))


async def _turns(
    context: WorkerContext, sessions: Iterator[str], counted: int, steps: _Steps
) -> None:
    await Workers(context.store.database).register(_WORKER)
    for _ in range(_TO_WARM_UP):
        await _turn(context, next(sessions), _Steps())
    for _ in range(counted):
        await _turn(context, next(sessions), steps)


async def per_step() -> Result:
    """Counted through the proxy, then timed without it."""
    async with own_database("_w") as url, queue(BenchSettings(url)) as made:
        sessions = iter(await made.sessions(2 * _TO_WARM_UP + _COUNTED + _TIMED))
        server = urlsplit(url)
        async with WireProxy(server.hostname or "127.0.0.1", server.port or 5432) as proxy:
            counted = _Steps(proxy.traffic)
            async with worker_context(
                BenchSettings(with_port(url, proxy.port), dead_after=_NEVER)
            ) as context:
                await _turns(context, sessions, _COUNTED, counted)
        timed = _Steps()
        async with worker_context(BenchSettings(url, dead_after=_NEVER)) as context:
            await _turns(context, sessions, _TIMED, timed)
    table = Table(
        "A turn without its agent, step by step",
        ("step", "round trips", "statements", "client CPU µs"),
    )
    findings: list[Finding] = []
    for name, steps in counted.taken.items():
        trips = median(step.round_trips for step in steps)
        if name in TARGETS:
            findings.append(Finding(TARGETS[name], Interval.exact(trips)))
        statements = median(step.statements for step in steps)
        cpu = median(step.cpu for step in timed.taken[name])
        table.add(name, f"{trips:g}", f"{statements:g}", micros(cpu))
    return Result([table], findings)
