"""SIEGE: one server attacked in every way at once, and a tenant that does nothing wrong.

The quiet tenant is measured before the attacks and during them. What it must not notice: the server
is shared, so its requests may take longer, but none fails and no turn does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from faults.harness import Guarantee, Outcome, Run, new_tenant
from faults.server.attacks import AT_ONCE
from faults.server.processes import Project, Server, project, servers
from faults.turns.workspace import Workspace, temporary_workspace
from lango.store.keys import KeyStore
from lango.store.sessions.store import SqlSessionStore

QUIET_SHARE: Final = 0.3
"""Seconds without attacks before each second with them."""
EVERY: Final = 0.25
"""Seconds between two conversations of the quiet tenant."""
RATIO: Final = 5.0
MOST_MEMORY: Final = 512 << 20
BACK_WITHIN: Final = 5.0
PATIENCE: Final = 60.0
STREAMS_OF_A_KEY: Final = 50
REFUSED: Final = ("guess 429", "slow, ended by the server", "stream 429")
"""Answers that show a limit at work: each attack must meet its own."""
_ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass
class Times:
    """How long the requests of the quiet tenant took, and what went wrong with them."""

    seconds: list[float] = field(default_factory=list[float])
    turns: int = 0
    wrong: list[str] = field(default_factory=list[str])

    @property
    def slowest_percent(self) -> float:
        """The 99th percentile."""
        return sorted(self.seconds)[int(0.99 * (len(self.seconds) - 1))]


class QuietTenant:
    """Talks to the server at a steady pace, each conversation in a session of its own."""

    def __init__(self, client: httpx.AsyncClient, app: str) -> None:
        self._client, self._app = client, app

    async def talk_for(self, seconds: float) -> Times:
        """What it found."""
        times, tasks, until = Times(), list[asyncio.Task[None]](), time.monotonic() + seconds
        while time.monotonic() < until:
            tasks.append(asyncio.create_task(self._talk(times)))
            await asyncio.sleep(EVERY)
        _, late = await asyncio.wait(tasks, timeout=PATIENCE)
        times.wrong += [f"a conversation was not over after {PATIENCE:.0f} s"] * len(late)
        for task in late:
            task.cancel()
        return times

    async def talk_once(self) -> Times:
        """One conversation."""
        times = Times()
        await self._talk(times)
        return times

    async def _talk(self, times: Times) -> None:
        try:
            session = await self._ask(times, "POST", "/v1/sessions", {"app": self._app})
            path = f"/v1/sessions/{session['id']}/turns"
            turn = await self._ask(times, "POST", path, {"message": "hello"})
            await self._ask(times, "GET", "/v1/me")
            times.turns += 1
            state = await self._state_after(turn["id"])
            if state != "completed":
                times.wrong.append(f"turn {turn['id']} is {state}")
        except (httpx.HTTPError, ConnectionError) as error:
            times.wrong.append(repr(error))

    async def _state_after(self, turn: str) -> str:
        """The state of a turn once its events have ended."""
        async with self._client.stream("GET", f"/v1/turns/{turn}/events") as response:
            async for _ in response.aiter_bytes():
                pass
        return str((await self._client.get(f"/v1/turns/{turn}")).json()["state"])

    async def _ask(
        self, times: Times, method: str, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        began = time.monotonic()
        response = await self._client.request(method, path, json=body)
        times.seconds.append(time.monotonic() - began)
        if not response.is_success:
            raise ConnectionError(f"{method} {path}: {response.status_code} {response.text[:200]}")
        return response.json()


async def _attack(server: Server, key: str, seconds: float) -> dict[str, int]:
    """Run the attacks in a process of their own; how often each was answered how."""
    given = (server.url, key, server.project.workspace.app, str(seconds))
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "faults.server.attacks", *given),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await running.communicate()
    if running.returncode:
        raise RuntimeError(f"the attacks ended with {running.returncode}")
    return json.loads(out)


async def _noisy_key(workspace: Workspace) -> str:
    async with SqlSessionStore(workspace.url) as store:
        return (await KeyStore(store.database).create(new_tenant(), user="noisy")).text


def _most_memory(server: Server) -> int:
    """The most that the process has had in memory at a time, in bytes."""
    assert server.running is not None
    status = Path(f"/proc/{server.running.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


async def _seconds_until_well(tenant: QuietTenant) -> float:
    """How long after the attacks a conversation goes well again."""
    began = time.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while (await tenant.talk_once()).wrong:
                pass
    return time.monotonic() - began


async def _trial(kind: str, of: Project, key: str, seconds: float, run: Run) -> Outcome:
    outcome = Outcome()
    async with servers(of, 1, with_worker=True) as (server,), server.client() as client:
        tenant = QuietTenant(client, of.workspace.app)
        await tenant.talk_once()
        quiet = await tenant.talk_for(max(QUIET_SHARE * seconds, 5.0))
        besieged, answers = await asyncio.gather(
            tenant.talk_for(seconds), _attack(server, key, seconds)
        )
        well = await _seconds_until_well(tenant)
        memory = _most_memory(server)
    for wrong in (*quiet.wrong, *besieged.wrong)[:5]:
        outcome.fail(f"{kind}: {wrong}")
    before, during = quiet.slowest_percent, besieged.slowest_percent
    outcome.expect(memory <= MOST_MEMORY, f"{kind}: the server had {memory >> 20} MB")
    streams = answers.get(AT_ONCE, 0)
    outcome.expect(streams <= STREAMS_OF_A_KEY, f"{kind}: one key had {streams} streams at once")
    if run.timed:  # else the attacks may be over before they meet every limit
        for answer in REFUSED:
            outcome.expect(bool(answers.get(answer)), f"{kind}: no attack met {answer!r}")
        slow = f"{kind}: 99 % of requests took {during:.3f} s, and {before:.3f} s when it was quiet"
        outcome.expect(during <= RATIO * before, slow)
        outcome.expect(well <= BACK_WITHIN, f"{kind}: a turn went well only {well:.1f} s after")
    outcome.note(
        f"{kind}: {besieged.turns} turns of the quiet tenant; 99 % of its requests in "
        f"{1000 * during:.0f} ms (quiet {1000 * before:.0f} ms); {memory >> 20} MB at most; well "
        f"again after {well:.1f} s; attacks: {_listed(answers)}"
    )
    return outcome


def _listed(answers: dict[str, int]) -> str:
    return ", ".join(f"{what} × {number}" for what, number in sorted(answers.items()))


async def _trials(run: Run) -> Outcome:
    whole = Outcome()
    for kind, url in run.databases.each().items():
        with temporary_workspace(url) as workspace:
            limits = f"server: {{max_streams_per_key: {STREAMS_OF_A_KEY}}}\n"
            of = await project(workspace, new_tenant(), delay=0.0, more_settings=limits)
            found = await _trial(kind, of, await _noisy_key(workspace), run.count, run)
        whole.figures += found.figures
        whole.failures += found.failures
    return whole


SIEGE: Final = Guarantee(
    "SIEGE",
    "one server attacked in every way at once: a quiet tenant goes on, memory is bounded",
    full=300,
    ci=20,
    run=lambda run: asyncio.run(_trials(run)),
)
