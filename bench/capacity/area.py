"""What 10,000, a million and a hundred million turns an hour need, and how long they wait."""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, Final

from bench.capacity.arrivals import Bursts, Load, Simulated, simulate
from bench.capacity.figures import dispatch, log_writes, notices, turn_costs
from bench.capacity.model import CapacityModel
from bench.report import Table, millis, summary, verdicts
from bench.rounds import Interval
from bench.targets import Finding, Target, exit_code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.capacity.model import Plan

SCALES: Final = (10_000, 1_000_000, 100_000_000)
"""Turns an hour."""
TENANTS: Final = 20
BURSTS: Final = Bursts(factor=2.0, seconds=20.0, every=120.0)
START_WITHIN: Final = 1.0
"""Seconds within which 95 % of the turns should start."""
_TURNS: Final = 20_000  # simulated turns at each scale, or the turns of this many seconds
_SECONDS: Final = 480.0
_BREAKS: Final = {
    "cores": "CPU of the database: every NOTIFY wakes every process",
    "connections": "connections: PgBouncer",
    "WAL": "the disk of the WAL, and the replicas behind it",
    "disk": "disk: keep sessions for fewer days, then a second database",
    "commits with a notice": "commits that carry a NOTIFY: a bus, or a second database",
}


def needs(plans: Mapping[int, Plan]) -> Table:
    """What each scale needs, over all its databases."""
    table = Table(
        "What turns need, over all databases",
        (
            *("turns an hour", "a second", "concurrent", "workers", "servers", "their cores"),
            *("database cores", "of these for NOTIFY", "databases", "connections", "WAL MB/s"),
            *("GB a day kept", "GB of event logs"),
        ),
    )
    for turns, plan in plans.items():
        table.add(
            *(f"{turns:,}", f"{plan.rate:,.1f}", f"{plan.concurrent:,.0f}"),
            *(f"{plan.workers:,}", f"{plan.servers:,}", f"{plan.process_cores:,.1f}"),
            *(f"{plan.database_cores:,.2f}", f"{plan.notice_cores:,.2f}", plan.databases),
            *(f"{plan.connections:,}", f"{plan.wal / 1e6:,.2f}"),
            *(f"{plan.kept_per_day / 1e9:,.1f}", f"{plan.log / 1e9:,.1f}"),
        )
    return table


def limits(plans: Mapping[int, Plan]) -> Table:
    """The share of a single database server that each scale would use."""
    names = list(_BREAKS)
    table = Table(
        "The part of one database server's limits that is used, were it the only one",
        ("turns an hour", *names, "breaks first"),
    )
    for turns, plan in plans.items():
        shares = (f"{plan.shares[name]:,.3f} ×" for name in names)
        breaks = _BREAKS[plan.breaks_first] if max(plan.shares.values()) > 1 else "nothing"
        table.add(f"{turns:,}", *shares, breaks)
    return table


def measured_model() -> CapacityModel:
    """The model with the measured costs, and all assumptions as they are."""
    return CapacityModel(turn_costs(), notices(), log_writes())


def waits(model: CapacityModel, plan: Plan, workers: int, seed: int) -> Simulated:
    """Simulate one database of a plan with this number of workers."""
    rate = plan.rate / plan.databases
    workload, start = model.workload, dispatch()

    def service(rng: random.Random) -> float:
        model_time = workload.model_median * math.exp(rng.gauss(0.0, workload.model_sigma))
        return model_time + model.turn.worker_cpu

    load = Load(rate, max(_SECONDS, _TURNS / rate), TENANTS, BURSTS)
    slots = max(workers // plan.databases, 1) * model.processes.concurrency
    return simulate(load, slots, service, seed=seed, dispatch=start.draw)


def _waiting(
    model: CapacityModel, plans: Mapping[int, Plan], seed: int
) -> tuple[Table, list[Finding]]:
    table = Table(
        "From submit to start, ms, simulated for one of the databases",
        ("turns an hour", "workers", "slots used", "median", "p95", "p99", "p99, other tenants"),
    )
    findings: list[Finding] = []
    for turns, plan in plans.items():
        for part in (1.0, 0.5):
            workers = max(round(plan.workers * part), 1)
            found = waits(model, plan, workers, seed)
            shown = [millis(found.all.quantile(q)) for q in (0.5, 0.95, 0.99)]
            others = millis(found.other_tenants.quantile(0.99))
            table.add(f"{turns:,}", f"{workers:,}", f"{found.used:.0%}", *shown, others)
            if part == 1.0:
                target = Target(f"{turns:,} turns an hour: p95 to start", START_WITHIN, unit="s")
                findings.append(Finding(target, Interval.exact(found.all.quantile(0.95))))
    return table, findings


async def main(*, measure: bool, seed: int) -> int:
    """Print the plan, or measure its inputs; the exit code."""
    began = time.monotonic()
    if measure:
        from bench.capacity.measure import tables  # it imports ADK: the model does not need that

        for table in await tables():
            print(table)
        return 0
    model = measured_model()
    plans = {turns: model.plan(turns) for turns in SCALES}
    table, findings = _waiting(model, plans, seed)
    for each in (needs(plans), limits(plans), table, verdicts(findings)):
        print(each)
    print(summary("capacity", findings, time.monotonic() - began))
    return exit_code(findings)
