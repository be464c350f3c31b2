"""The runbook's entries about what is outside of lango: provoked, seen, found and mended."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from faults.database.full_disk import SmallDisk, small_disk
from faults.database.own_cluster import own_cluster
from lango.core.messages.streams import Usage
from lango.store.schema import migrate
from lango.testing.wires.script import Refusal, ScriptedAnswer
from lango.testing.wires.server import WireServer
from tests.cli.processes import PATIENCE, lango
from tests.support.prometheus import Prometheus, until
from tests.support.scrapes import HAS_PROMETHEUS
from tests.telemetry.runbook.drills import ENTRIES, Drill

pytestmark = pytest.mark.skipif(not HAS_PROMETHEUS, reason="Prometheus is not installed")
DISK: Final = 100
"""Megabytes: an empty database has 40."""
MODEL: Final = "{agent: {model: 'openai-chat:gpt-5'}}"


@contextmanager
def provider() -> Generator[WireServer]:
    """A model server, in a thread of its own."""
    server, begun = WireServer("openai_chat"), threading.Event()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def serve() -> None:
        async with server:
            begun.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert begun.wait(60)
        yield server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


@contextmanager
def clients(drill: Drill, path: str) -> Generator[list[int]]:
    """Twenty clients that begin one after the other, and ask again and again."""
    done, statuses = threading.Event(), list[int]()

    def read(delay: float) -> None:
        done.wait(delay)
        while not done.is_set():
            statuses.append(drill.ask("GET", path).status_code)

    with ThreadPoolExecutor(20) as pool:
        reads = [pool.submit(read, number / 2) for number in range(20)]
        try:
            yield statuses
        finally:
            done.set()
    for each in reads:
        each.result()


def with_model(drill: Drill, server: WireServer) -> None:
    """Let the agent's model be one of this server."""
    drill.environment = {"OPENAI_API_KEY": "test-key"}
    drill.write(MODEL, providers=f"{{openai-chat: {{base_url: '{server.url}'}}}}")


def test_a_provider_is_down_or_limits_requests(drill: Drill) -> None:
    entry = "A provider is down or limits requests"
    with provider() as server, drill.served() as watch:
        server.say(Refusal("failing"))
        with_model(drill, server)
        with drill.worker() as worker:
            worker.wait_for("Probes and metrics")
            turns: list[str] = []

            def fails(alert: str) -> bool:
                turns.extend(drill.submit("hello"))
                return watch.is_firing(alert)

            until(lambda: fails("LangoProviderFails"))
            until(lambda: fails("LangoTurnsFail"))
            server.say(Refusal("rate_limited"))
            until(lambda: fails("LangoProviderLimits"))
            errors = {row["error"]: row for row in drill.sql(entry)[0]}
            assert {"ModelUnavailableError", "RateLimitedError"} <= errors.keys()
            assert {row["model"] for row in errors.values()} == {"gpt-5"}
            kinds = {row["error"] for row in drill.sql("Turns fail")[0]}
            assert "ModelUnavailableError" in kinds
            server.say(ScriptedAnswer("Here I am."))
            failed = next(turn for turn in turns if drill.has_ended(turn, "failed"))
            assert "ModelUnavailableError" in drill.run(
                "Turns fail with WorkerLostError", "lango turns show", failed
            )
            drill.run("Turns fail with WorkerLostError", "lango turns retry", failed)
            until(lambda: bool(drill.rows("select 1 from turns where state = 'completed'")))
            until(lambda: not watch.is_firing("LangoProviderFails"))


def test_costs_run_away(drill: Drill) -> None:
    entry = "Costs run away"
    with provider() as server, drill.served() as watch:
        server.say(ScriptedAnswer("Dear.", usage=Usage(input=1_000, output=1_000_000)))
        with_model(drill, server)
        with drill.worker() as worker:
            worker.wait_for("Probes and metrics")

            def costs() -> bool:
                drill.submit("hello")
                return watch.is_firing("LangoCostHigh")

            until(costs)
            assert "gpt-5" in drill.run(entry, "lango usage")
            rows = drill.sql(entry)[0]
            assert {row["user_id"] for row in rows} == {"user"}
            assert all(float(row["dollars"]) > 1 for row in rows[:1])


def test_a_key_has_leaked(drill: Drill) -> None:
    entry = "A key has leaked"
    made = lango(drill.folder, "keys", "create", "--user", "ann", "--json")
    key = json.loads(made.stdout)
    drill.auth = {"Authorization": f"Bearer {key['key']}"}
    with drill.served("--host", "127.0.0.1") as watch:
        [turn] = drill.submit("hello")
        assert key["id"] in drill.run(entry, "lango keys list")
        assert drill.sql(entry, key["id"])[0][0]["id"] == turn
        drill.run(entry, "lango keys revoke", key["id"])
        until(lambda: drill.ask("GET", f"/v1/turns/{turn}").status_code == 401)

        def refused() -> bool:
            for _ in range(3):
                drill.ask("GET", f"/v1/turns/{turn}")
            return watch.is_firing("LangoKeysRefused")

        until(refused)
        drill.run(entry, "lango keys create")


def end_a_blocker(drill: Drill, entry: str, watch: Prometheus, turn: str) -> None:
    """Let another program lock a table until lango's connections wait for it, then end it."""
    lock = "lock table turn_events in access exclusive mode; select pg_sleep(3600)"
    blocker = subprocess.Popen(["psql", drill.url, "-c", lock], stderr=subprocess.DEVNULL)
    try:
        with clients(drill, f"/v1/turns/{turn}/timeline"):
            until(lambda: watch.is_firing("LangoConnectionsUsedUp"))
            [_, queries, blocked] = drill.sql(entry)
            [culprit] = {row["blocked_by"].strip("{}") for row in blocked}
            assert {row["query"] for row in queries if row["pid"] == culprit} == {lock[:60]}
            drill.rows(f"select pg_terminate_backend({culprit})")
            assert blocker.wait(PATIENCE) != 0
            until(lambda: drill.ask("GET", f"/v1/turns/{turn}/timeline").status_code == 200)
        until(lambda: not watch.is_firing("LangoConnectionsUsedUp"))
    finally:
        blocker.kill()
        blocker.wait(PATIENCE)


def test_postgresql_is_slow_or_down(tmp_path: Path) -> None:
    entry = "PostgreSQL is slow, down or failed over"
    with own_cluster() as cluster:
        asyncio.run(migrate.upgrade(cluster.url))
        drill = Drill(tmp_path, cluster.url)
        drill.write(store=f"{{url: '{cluster.url}', pool_size: 2, pool_overflow: 2}}")
        with drill.served() as watch, drill.worker() as worker:
            worker.wait_for("Probes and metrics")
            [turn] = drill.submit("call hold {}")
            until(lambda: drill.has_ended(turn, "running"))
            end_a_blocker(drill, entry, watch, turn)
            cluster.stop()
            until(lambda: watch.is_firing("LangoDatabaseDown"))
            until(lambda: watch.is_firing("LangoHeartbeatLate"))

            with clients(drill, f"/v1/turns/{turn}") as statuses:
                until(lambda: watch.is_firing("LangoRequestsRefused"))
            assert set(statuses) == {503}
            assert drill.ask("GET", "/readyz").json()["store"] == "failing"
            assert "`store: failing`" in ENTRIES["Requests get 503"]
            assert "Nothing answers at" in drill.run(entry, "lango db check")
            cluster.restart()
            until(lambda: drill.ask("GET", "/readyz").status_code == 200)
            (tmp_path / "go").touch()
            until(lambda: drill.has_ended(turn))
            until(lambda: not watch.is_firing("LangoDatabaseDown"))


def test_the_disk_is_full(tmp_path: Path) -> None:
    entry = "The disk is full"
    with small_disk(DISK) as disk, own_cluster(disk.folder) as cluster:
        if not isinstance(disk, SmallDisk):
            pytest.skip("A file system cannot be mounted here")
        asyncio.run(migrate.upgrade(cluster.url))
        drill = Drill(tmp_path, cluster.url)
        drill.write()
        with drill.served(), drill.worker() as worker:
            worker.wait_for("Probes and metrics")
            [turn] = drill.submit("call hold {}")
            until(lambda: drill.has_ended(turn, "running"))
            disk.fill(())
            until(lambda: drill.ask("GET", "/readyz").json()["store"] == "failing")
            new = {"app": "shop"}  # until no page of the table has room
            until(lambda: drill.ask("POST", "/v1/sessions", json=new).status_code == 503)
            assert "No space left on device" in cluster.log
            until(lambda: drill.ask("GET", f"/v1/turns/{turn}").json().get("state") == "running")
            systems = drill.run(entry, "df -h").splitlines()
            assert [line.split()[-2] for line in systems if str(disk.folder) in line] == ["100%"]
            disk.free()
            [[size], tables] = drill.sql(entry)
            assert re.fullmatch(r"\d+ [kM]B", size["pg_size_pretty"])
            assert "turn_events" in {row["relname"] for row in tables}
            until(lambda: drill.ask("GET", "/readyz").status_code == 200)
            (tmp_path / "go").touch()
            until(lambda: drill.has_ended(turn))
            assert drill.submit("hello")
