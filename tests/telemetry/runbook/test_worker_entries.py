"""The runbook's entries about the queue and the workers: provoked, seen, found and mended."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack

import pytest

from tests.support.prometheus import until
from tests.support.scrapes import HAS_PROMETHEUS
from tests.telemetry.runbook.drills import Drill

pytestmark = pytest.mark.skipif(not HAS_PROMETHEUS, reason="Prometheus is not installed")


def test_the_queue_grows(drill: Drill) -> None:
    entry = "The queue grows"
    drill.write(worker="{concurrency: 1}")
    with drill.served() as watch:
        turns = drill.submit(" ".join(["word"] * 50), 20)  # each takes a second
        until(lambda: watch.is_firing("LangoNoWorkers"))
        until(lambda: watch.is_firing("LangoQueueGrows"))
        picture = drill.run(entry, "lango top")
        assert re.search(r"shop\b.*\b20\b", picture), picture
        assert "alive" not in drill.run(entry, "lango workers")
        with drill.worker() as worker:
            worker.wait_for("Probes and metrics")
            until(lambda: watch.is_firing("LangoSubmitToStartSlow"))
            until(lambda: watch.is_firing("LangoFirstWordSlow"))
            until(lambda: all(drill.has_ended(turn) for turn in turns))
            until(lambda: not watch.is_firing("LangoQueueGrows"))
            until(lambda: not watch.is_firing("LangoNoWorkers"))
            assert re.search(r"\balive\b.*\bshop\b", drill.run(entry, "lango workers"))


def test_a_turn_is_stuck(drill: Drill) -> None:
    entry = "A turn is stuck"
    with drill.served() as watch, drill.worker() as lost:
        lost.wait_for("Probes and metrics")
        [turn, unwanted] = drill.submit("call hold {}", 2)
        until(lambda: {drill.state(turn), drill.state(unwanted)} == {"running"})
        with drill.worker(1) as other:
            until(lambda: len(watch.ask("lango_turn_takeover_seconds_count")) == 2)
            other.process.send_signal(signal.SIGSTOP)
            lost.kill()
            until(lambda: watch.is_firing("LangoTurnsWithoutWorker"))
            assert "running" in drill.run(entry, "lango turns show", turn)
            assert {row["id"] for row in drill.sql(entry)[0]} == {turn, unwanted}
            until(lambda: all(row["heartbeat"] > "00:00:11" for row in drill.sql(entry)[0]))
            drill.run(entry, "lango turns cancel", unwanted)
            other.process.send_signal(signal.SIGCONT)
            until(lambda: watch.is_firing("LangoTakeoverSlow"))
            (drill.folder / "go").touch()
            until(lambda: drill.has_ended(turn))
            until(lambda: drill.has_ended(unwanted, "cancelled"))
            until(lambda: not watch.is_firing("LangoTurnsWithoutWorker"))


def test_a_worker_dies_in_a_loop_until_its_turn_is_given_up(drill: Drill) -> None:
    entry, lost = "A worker dies in a loop", "Turns fail with WorkerLostError"
    with drill.served() as watch, ExitStack() as stack:
        [turn] = drill.submit("call crash {}")
        for number in range(1, 6):
            doomed = stack.enter_context(drill.worker())
            until(lambda doomed=doomed: doomed.process.poll() is not None)
            if number == 4:  # the one that has just died is counted when the next one claims it
                assert drill.sql(entry)[0][0] | {"worker": ""} == {
                    **{"id": turn, "app": "shop", "workers_lost": "3"},
                    **{"lost_alone": "3", "worker": ""},
                }
                until(lambda: watch.is_firing("LangoWorkersDie"))
        stack.enter_context(drill.worker())
        until(lambda: drill.has_ended(turn, "failed"))
        until(lambda: watch.is_firing("LangoWorkerLost"))
        assert turn in drill.run(lost, "lango turns list")
        assert "WorkerLostError" in drill.run(lost, "lango turns show", turn)
        (drill.folder / "mended").touch()
        drill.run(lost, "lango turns retry", turn)
        until(lambda: bool(drill.rows("select 1 from turns where state = 'completed'")))


def test_a_worker_hangs(drill: Drill) -> None:
    entry = "A worker hangs"
    with drill.served() as watch, ExitStack() as stack:
        with drill.worker() as stuck:
            stuck.wait_for("Probes and metrics")
            [clings] = drill.submit("call cling {}")
            until(lambda: drill.has_ended(clings, "running"))
            drill.run("A turn is stuck", "lango turns cancel", clings)
            drill.submit("call stutter {}")
            until(lambda: watch.is_firing("LangoEventLoopBlocked"))
            (drill.folder / "calm").touch()
            until(lambda: watch.is_firing("LangoAbandonedRuns"))
            stuck.wait_for(f"A tool or model of turn {clings} ignores its cancellation")
            assert drill.has_ended(clings, "cancelled")
            assert "cling" in drill.run(entry, "lango turns show", clings)
            stuck.process.terminate()
            assert stuck.end() == 0
        hung = stack.enter_context(drill.worker())
        hung.wait_for("Probes and metrics")
        until(lambda: not watch.is_firing("LangoAbandonedRuns"))
        [turn] = drill.submit("call block {}")
        hung.wait_for("The event loop has been blocked for")
        hung.wait_for("in block")
        until(lambda: watch.is_firing("LangoProcessDown"))
        assert str(hung.process.pid) in drill.run(entry, "lango workers")
        hung.kill()
        with drill.worker(1) as another:
            another.wait_for("Probes and metrics")
            until(lambda: drill.has_ended(turn))
            assert "outcome unknown" in drill.run("A turn is stuck", "lango turns show", turn)


def test_tools_and_requests_fail(drill: Drill) -> None:
    entry = "Turns fail"
    with drill.served() as watch, drill.worker() as worker:
        worker.wait_for("Probes and metrics")
        [turn] = drill.submit("hello")
        session = drill.ask("GET", f"/v1/turns/{turn}").json()["session"]
        drill.rows("alter table artifacts rename to artifacts_of_old")
        problems = list[dict[str, str]]()

        def fails(alert: str) -> bool:
            problems.append(drill.ask("GET", f"/v1/sessions/{session}/files").json())
            drill.submit("call look_up {}")
            return watch.is_firing(alert)

        until(lambda: fails("LangoRequestsFail"))
        assert drill.server
        assert problems[-1]["error_id"] in drill.server.err
        assert 'relation "artifacts" does not exist' in drill.server.err
        assert "lacks the tables artifacts" in drill.run(entry, "lango db check")
        drill.rows("alter table artifacts_of_old rename to artifacts")
        assert drill.ask("GET", f"/v1/sessions/{session}/files").status_code == 200

        until(lambda: fails("LangoToolFails"))
        [failures, [tool]] = drill.sql(entry)
        assert failures == []  # turns complete
        assert (tool["tool"], tool["error"]) == ("look_up", "FileNotFoundError")
        assert "shop.py" in tool["place"]
        shown = drill.run(entry, "lango turns show", tool["last_turn"])
        assert "No such file or directory: 'stock'" in shown
        (drill.folder / "stock").write_text("three left")
        until(lambda: not fails("LangoToolFails"))
        assert not watch.is_firing("LangoRequestsFail")
