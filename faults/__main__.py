"""`python -m faults`: try the guarantees by breaking things, and say which of them held."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from faults import results
from faults.blackbox.row import BLACKBOX
from faults.carriers.choose import BUSES, ENGINES, ON_CARRIERS, carriers
from faults.database.backends import G7
from faults.database.idle import IDLE
from faults.database.locked import LOCKED
from faults.database.lost_replies import G8
from faults.database.outage import OUTAGE
from faults.database.restarts import G9
from faults.harness import WHOLE, Databases, Guarantee, Outcome, Part, report, temporary_databases
from faults.models.histories import G13
from faults.models.server_faults import G15
from faults.models.streams import G14
from faults.queue.machine import QUEUE
from faults.recovery.agent_shapes import SHAPES_ROW
from faults.recovery.call_ids import IDS
from faults.recovery.direct_deltas import DELTAS
from faults.recovery.kills import G1, G3
from faults.recovery.poison import POISON
from faults.recovery.upgrades import UPGRADE
from faults.server.reconnects import G17
from faults.server.siege import SIEGE
from faults.server.tenants import G18
from faults.store.clocks import G11
from faults.store.deletes import DELETE
from faults.store.hostile import G16
from faults.store.memories import MEMORY
from faults.store.state_machine import G12
from faults.store.usage import LEDGER
from faults.store.writer_rows import G4, G5
from faults.turns.chaos import CHAOS
from faults.turns.chats import CHATS
from faults.turns.deploys import DEPLOY
from faults.turns.dispatches import DISPATCH
from faults.turns.hangs import HANG
from faults.turns.order import ORDER
from faults.turns.readers import READ
from faults.turns.worker_faults import G2, G6, G10
from lango.turns.engine.choose import DATABASE

_NUMBERED: Final = (
    *(G1, G2, G3, G4, G5, G6, G7, G8, G9, G10, G11, G12, G13, G14, G15, G16, G17, G18),
)
_NAMED: Final = (
    *(QUEUE, ORDER, HANG, READ, CHATS, CHAOS, DEPLOY, DISPATCH),
    IDS,
    DELTAS,
    POISON,
    BLACKBOX,
    SHAPES_ROW,
    UPGRADE,
    DELETE,
    MEMORY,
    OUTAGE,
    LOCKED,
    LEDGER,
    IDLE,
    SIEGE,
)
GUARANTEES: Final[dict[str, Guarantee]] = {each.name: each for each in (*_NUMBERED, *_NAMED)}


FULL: Final = {name: each.full for name, each in GUARANTEES.items()}


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--only", choices=sorted(GUARANTEES), help="one guarantee; default: all")
    parser.add_argument("--count", type=int, help="how often; default: the full count")
    parser.add_argument("--seed", type=int, help="replay a run; default: a new one, printed")
    parser.add_argument("--ci", action="store_true", help="the counts that CI runs")
    parser.add_argument("--part", type=Part.parsed, default=WHOLE, help="a slice of it, as 3/8")
    parser.add_argument(
        "--results",
        type=Path,
        help=f"the file to add a line to; default: {results.RESULTS.name}, for full counts only",
    )
    for name, choices in (("engine", ENGINES), ("bus", BUSES)):
        killed = f"run on this {name}, which is killed and restarted meanwhile"
        parser.add_argument(f"--{name}", choices=choices, default=DATABASE, help=killed)
    parser.add_argument("--list", action="store_true", help="print the rows with their counts")
    parser.add_argument("--table", action="store_true", help="write the docs' table and end")
    return parser.parse_args(argv)


def _run(guarantee: Guarantee, databases: Databases, arguments: argparse.Namespace) -> bool:
    count, part = arguments.count, arguments.part
    if count is None:
        count = guarantee.ci if arguments.ci else guarantee.full
    seed = secrets.randbelow(2**32) if arguments.seed is None else arguments.seed
    sliced = "" if part == WHOLE else f", part {part}"
    print(f"{guarantee.name}: count {count or 'all'}, seed {seed}{sliced}", flush=True)
    commit, began = results.tested_commit(), time.monotonic()
    try:
        run = guarantee.share(count, seed, databases, part=part, timed=not arguments.ci)
        outcome = guarantee.run(run)
    except Exception as error:  # noqa: BLE001 - whatever broke goes into the report
        outcome = Outcome(failures=[f"{type(error).__name__}: {error}"])
    for failure in outcome.failures[1:20]:
        print(f"  {failure}")
    print(report(guarantee, outcome), flush=True)
    path = arguments.results or (results.RESULTS if count == guarantee.full else None)
    if path is not None:
        result = results.Result(
            row=guarantee.name,
            count=count,
            part=str(part),
            seed=seed,
            commit=commit,
            date=results.today(),
            outcome="failed" if outcome.failures else "ok",
            figures=outcome.figures,
            seconds=round(time.monotonic() - began, 1),
            failures=outcome.failures,
            engine=arguments.engine,
            bus=arguments.bus,
        )
        results.append(result, path)
    return not outcome.failures


def _list() -> None:
    for each in GUARANTEES.values():
        count = f"{each.full or 'all'} ({each.ci or 'all'} in CI)"
        print(f"{each.name:8} {count:22} {each.parts} parts: {each.promise}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the selected guarantees; return 0 if all of them held."""
    arguments = _arguments(argv)
    if arguments.table or arguments.list:
        results.write_table(FULL) if arguments.table else _list()
        return 0
    chosen = [GUARANTEES[arguments.only]] if arguments.only else list(GUARANTEES.values())
    refused = [each.name for each in chosen if each.name not in ON_CARRIERS]
    if refused and (arguments.engine, arguments.bus) != (DATABASE, DATABASE):
        known = ", ".join(ON_CARRIERS)
        print(f"{refused[0]} starts no workers; on another engine or bus run one of {known}.")
        return 2
    with carriers(arguments.engine, arguments.bus) as strikers, asyncio.Runner() as runner:
        opened = temporary_databases()
        databases = runner.run(opened.__aenter__())
        try:
            held = [_run(guarantee, databases, arguments) for guarantee in chosen]
            for striker in strikers:
                print(f"{striker.server.url} was killed and restarted {striker.kills} times")
        finally:
            runner.run(opened.__aexit__(None, None, None))
    if len(chosen) > 1:
        print(f"faults: {sum(held)} of {len(held)} guarantees held")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
