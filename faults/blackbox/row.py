"""The row: clients use a fleet while faults are injected; then the judge checks the evidence."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

from faults.blackbox.clients import APPS, Client, Endpoints, Work
from faults.blackbox.evidence import Evidence, tables_of
from faults.blackbox.fleet import Fleet
from faults.blackbox.judge import judged
from faults.blackbox.logs import Log, read
from faults.blackbox.model_server import ModelServer
from faults.blackbox.processes import Zygote, zygote
from faults.harness import Guarantee, Outcome, Run
from tests.support.databases import temporary_postgres, temporary_sqlite

CLIENTS: Final = 8
TURNS_PER_BLOW: Final = 5
BLOWS_AT_ONCE: Final = 2
TENANTS: Final = ("north", "south")
_ON_POSTGRES: Final = 0.75  # of the turns; one server on SQLite runs the others


def _settings(url: str) -> str:
    apps = "".join(f"  {app}: agents:{app}\n" for app in APPS)
    return f"apps:\n{apps}store: {{url: '{url}'}}\nworker: {{drain: 2, hang_after: 20}}\n"


async def _keys(start: Zygote, env: dict[str, str]) -> dict[str, str]:
    """Create a key for each tenant with `lango keys`."""
    keys: dict[str, str] = {}
    for tenant in TENANTS:
        made = await start.start(
            *("keys", "create", "--tenant", tenant, "--scope", "chat", "--scope", "act_as"),
            "--json",
            env=env,
        )
        code = await made.ended
        output = made.log.read_text("utf-8")
        assert code == 0, output
        keys[tenant] = json.loads(output[output.index("{") : output.rindex("}") + 1])["key"]
    return keys


def _first(error: Exception) -> Exception:
    """The first error of a nested group: the report shows one."""
    inside: Sequence[Exception] = getattr(error, "exceptions", ())
    return _first(inside[0]) if inside else error


class Trial:
    """One fleet on one database."""

    def __init__(self, folder: Path, url: str, turns: int, seed: int, *, is_one: bool) -> None:
        self.folder, self.url, self.is_one = folder, url, is_one
        self.drawn = random.Random(seed)
        self.work = Work(turns, random.Random(self.drawn.random()))
        self.logs = {name: folder / f"{name}.jsonl" for name in ("client", "tools", "model")}
        self.stubborn: list[str] = []
        self.done: Counter[str] = Counter()

    async def run(self) -> Evidence:
        """Run all turns; return the evidence."""
        shutil.copy(Path(__file__).with_name("agents.py"), self.folder)
        (self.folder / "lango.yaml").write_text(_settings(self.url), "utf-8")
        log = Log(self.logs["client"])
        model_log = Log(self.logs["model"])
        model = ModelServer(model_log, uuid4().hex[:6])
        env = {"BLACKBOX_MODEL": await model.start(), "BLACKBOX_TOOLS": str(self.logs["tools"])}
        try:
            async with zygote(self.folder) as start:
                keys = await _keys(start, env)
                fleet = Fleet(start, self.folder, env, log)
                await fleet.start(is_one=self.is_one)
                await self._talk(fleet, keys, log)
                self.stubborn = await fleet.stop()
                self.done = fleet.done
        finally:
            await model.stop()
            log.close()
            model_log.close()
        lines = {name: read(path) for name, path in self.logs.items()}
        return Evidence(await tables_of(self.url), lines["client"], lines["tools"], lines["model"])

    async def _talk(self, fleet: Fleet, keys: dict[str, str], log: Log) -> None:
        endpoints = Endpoints(fleet.urls, keys)
        clients = [
            Client(number, endpoints, self.work, log, random.Random(self.drawn.random()))
            for number in range(CLIENTS)
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for client in clients:
                    group.create_task(client.talk())
                group.create_task(self._strike(fleet))
        except ExceptionGroup as errors:
            raise _first(errors) from errors

    async def _strike(self, fleet: Fleet) -> None:
        """Inject faults while clients submit; deploy half-way; the last turns run undisturbed."""
        most = max(self.work.turns // TURNS_PER_BLOW, 4)
        room = asyncio.Semaphore(BLOWS_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._deploy(fleet))
            for number in range(most):
                await self._until(number / most)
                await room.acquire()
                fault = group.create_task(fleet.inject_fault(self.drawn, number, self.url))
                fault.add_done_callback(lambda _: room.release())

    async def _deploy(self, fleet: Fleet) -> None:
        await self._until(0.5)
        await fleet.deploy()

    async def _until(self, share: float) -> None:
        """Wait until this share of the turns is submitted, and a moment more."""
        while self.work.taken < share * self.work.turns:  # noqa: ASYNC110 - many may hand in
            await asyncio.sleep(0.1)
        await asyncio.sleep(self.drawn.uniform(0.2, 1.0))


async def _run_on(url: str, turns: int, seed: int, outcome: Outcome, *, is_one: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="lango-") as folder:
        trial = Trial(Path(folder), url, turns, seed, is_one=is_one)
        evidence = await trial.run()
        wrong = [*judged(evidence), *trial.stubborn]
        where = "SQLite" if is_one else "PostgreSQL"
        for each in wrong:
            outcome.fail(f"on {where}: {each}")
        done = trial.done
        kills = {kind: done[f"kill {kind}"] for kind in ("worker", "server")}
        freezes = done["freeze worker"] + done["freeze server"]
        resumed = sum(row["attempts"] > 1 for row in evidence.tables["turns"])
        outcome.note(
            f"{len(evidence.logged('ack'))} turns of {len(APPS)} shapes on {where}, "
            f"{kills['worker']} workers and {kills['server']} servers killed, {freezes} frozen, "
            f"{done['connections']} connections ended, {done['deploy']} deploys, "
            f"{resumed} turns resumed, {len(evidence.logged('deleted'))} sessions deleted, "
            f"{len(evidence.logged('read'))} streams read: {len(wrong)} violations"
        )


async def _trial(run: Run) -> Outcome:
    outcome, drawn = Outcome(), random.Random(run.seed)
    fleet = max(round(run.count * _ON_POSTGRES), 1)
    async with temporary_postgres(run.databases.postgres) as url:
        await _run_on(url, fleet, drawn.randrange(2**32), outcome, is_one=False)
    async with temporary_sqlite() as url:
        await _run_on(url, max(run.count - fleet, 1), drawn.randrange(2**32), outcome, is_one=True)
    return outcome


BLACKBOX: Final = Guarantee(
    "BLACKBOX",
    "servers and workers as processes, struck in every way, judged from outside: nothing wrong",
    full=2_000,
    ci=60,
    run=lambda run: asyncio.run(_trial(run)),
    parts=8,
)
