"""`lango top`: one picture for scripts, and a live one at a terminal."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from lango.cli.output.operations import Screenful
from lango.core.causes import Cause
from lango.core.fleet import (
    FailedTurn,
    FleetState,
    OpenTurnsOfApp,
    RegisteredWorker,
    RunningTurn,
)
from lango.core.turns.events import Failed
from lango.insight.operations import OperationsPicture
from lango.store.sessions.entries import SessionKey
from tests.cli.eventful_store import Shell
from tests.cli.running import run
from tests.cli.terminal import Terminal
from tests.store.turns.turn_stores import opened

NOW = datetime.now(UTC)


def filled(url: str, tenant: str) -> str:
    """A queued turn, a running one and a failed one of an app; the id of the failed turn."""

    async def fill() -> str:
        failed = ""
        async with opened(url) as stores:
            worker = await stores.worker("shop")
            for name in ("failed", "running", "queued"):
                key = SessionKey(tenant, "shop", "ann", name)
                ref = await stores.session(key)
                turn = await stores.submit(key)
                if name == "failed":
                    failed = turn.id
                    claim = await stores.claim(ref.pk, worker)
                    await stores.queue.close(claim, Failed(ValueError("no\x1b[31m disk")))
                elif name == "running":
                    await stores.claim(ref.pk, worker)
        return failed

    return asyncio.run(fill())


def test_an_empty_database(sqlite_url: str) -> None:
    done = run("top", "--once", "--url", sqlite_url)
    assert done.code == 0, done.err
    assert "queued 0 · running 0 · input_required 0 · scheduled 0 · workers 0" in done.out
    assert "None: nothing runs until `lango worker` or `lango serve` starts one." in done.out


def test_one_picture(store_url: str, tenant: str) -> None:
    failed, shell = filled(store_url, tenant), Shell(store_url, tenant)
    out = shell.out("top", "--once")
    lines = out.splitlines()
    assert "queued 1 (the oldest for " in lines[0]
    assert " · running 1 · " in lines[0]
    start = lines.index("Open turns")
    assert lines[start + 2].split()[:3] == ["shop", tenant, "1"]
    [row] = [line for line in lines if line.startswith(failed)]
    assert row.rstrip().endswith("InternalError  ValueError: no\ufffd[31m disk")
    picture = shell.json("top")
    assert [turn["turn"] for turn in picture["failures"]] == [failed]
    assert [turn["user"] for turn in picture["running"]] == ["ann"]
    every_tenant = run("top", "--once", "--url", store_url).out
    assert tenant in every_tenant


def test_a_database_that_is_held(sqlite_url: str) -> None:
    assert run("db", "hold", "--url", sqlite_url).out.startswith("The database is held: ")
    assert "An operator holds this database" in run("top", "--once", "--url", sqlite_url).out
    assert "An operator holds this database" in run("doctor", "--url", sqlite_url).out
    assert run("db", "release", "--url", sqlite_url).out.startswith("The database is released: ")
    assert run("db", "release", "--url", sqlite_url).out == "The database was not held.\n"
    assert "holds" not in run("top", "--once", "--url", sqlite_url).out


def test_a_terminal_that_is_too_small() -> None:
    worker = RegisteredWorker("wrk_1", "alive", "pod", 1, {"shop": "ff"}, NOW, NOW, 0.5, 3)
    running = RunningTurn("turn_1", "ses_1", "shop", "ann", "wrk_1", NOW - timedelta(minutes=3), 1)
    cause = Cause("ValueError", "no disk", "shop.py:3, in buy")
    failed = FailedTurn(
        "turn_2", "ses_2", "", "shop", "ann", "InternalError", "…", "turn_2", cause, 1, NOW, NOW,
        is_answer=False, retry=None,
    )  # fmt: skip
    groups = tuple(OpenTurnsOfApp(f"app-{n}", "queued", n, float(n)) for n in range(1, 30))
    for height in (24, 60):
        screenful = Screenful(2.0)
        screenful.picture = OperationsPicture(
            NOW,
            None,
            FleetState(groups, alive=30),
            (worker,) * 30,
            (running,) * 30,
            (failed,) * 30,
            "",
        )
        with Path(os.devnull).open("w") as nowhere:
            console = Console(width=80, height=height, record=True, file=nowhere)
            console.print(screenful)
            lines = console.export_text().splitlines()
        assert len(lines) <= max(height, 27)
        assert max(map(len, lines)) <= 80
        assert lines[-1] == "Every 2 s. Ctrl-C ends."
        assert lines[3].startswith("app") and lines[4].startswith("app-29")  # noqa: PT018
        assert any(line.startswith("and ") for line in lines)
        assert any("no disk" in line or "ValueError" in line for line in lines)


def test_a_problem_is_shown_with_the_last_picture() -> None:
    screenful = Screenful(2.0)
    screenful.problem = "The database did not answer."
    with Path(os.devnull).open("w") as nowhere:
        console = Console(width=80, record=True, file=nowhere)
        console.print(screenful)
        assert console.export_text().strip() == "The database did not answer."


def test_live_at_a_terminal(sqlite_url: str, tenant: str, tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.lango("top", "--url", sqlite_url, "--every", "0.2")
        terminal.wait_for("queued 0")
        failed = filled(sqlite_url, tenant)
        terminal.wait_for("queued 1")
        terminal.wait_for(failed)
        terminal.press("C-c")
        terminal.type("echo $? | tr 0 Z")
        assert "Traceback" not in terminal.wait_for("$ Z")
