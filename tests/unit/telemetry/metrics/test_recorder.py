"""The metrics of a process: their names, their labels, and how many series they can become."""

import logging
import re
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest
from starlette.types import Message, Receive, Scope, Send

from lango.core.context.model_calls import ModelAttempt
from lango.core.fleet import FleetState, OpenTurnsOfApp
from lango.core.messages.streams import Usage
from lango.core.turns.events import Completed, MessageDelta, ToolFinished, ToolStarted
from lango.server.http.access_log import AccessLog
from lango.store.sessions.entries import SessionKey
from lango.store.turns.rows import Claim, Turn
from lango.telemetry.metrics.recorder import Recorder
from lango.turns.log.feeds import AttemptBegun, AttemptOver
from lango.turns.metrics import TurnMetrics
from tests.support.scrapes import HAS_PROMETHEUS, PROMTOOL, recording, scrape

SESSIONS: Final = 100_000
OPENAI: Final = {"provider": "openai", "model": "gpt"}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as made:
        yield made


def turn(number: int, app: str = "shop") -> Turn:
    """A turn of a user, a session and a tenant of its own."""
    return Turn(
        id=f"turn_{number}",
        session=SessionKey(f"tenant-{number}", app, f"user-{number}", f"ses_{number}"),
        session_pk=number,
        number=1,
        state="running",
        invocation_id=f"turn_{number}",
        input={},
        options={},
        idempotency_key=f"key-{number}",
        attempts=1,
        cancel_requested=False,
        answers=None,
        waits_for=(),
        usage=None,
        error=None,
        causes={},
        last_event=2,
        trimmed=False,
        run_at=None,
        time_limit=60.0,
        key_id=f"key_{number}",
        cost_limit=None,
        created=1_000.0,
        started=1_000.25,
        ended=None,
    )


def run(measured: TurnMetrics, made: Turn, tool: str = "look_up") -> None:
    """All that happens in a turn with a tool."""
    claim = Claim(f"clm_{made.id}", made, 1, "wrk_1", 60.0, "")
    measured.observe(made, AttemptBegun(claim))
    measured.observe(made, ToolStarted(f"call-{made.id}", tool, {}))
    measured.observe(made, ToolFinished(f"call-{made.id}", tool, {"result": made.id}))
    measured.observe(made, MessageDelta(f"m-{made.id}", "Hello"))
    measured.observe(made, MessageDelta(f"m-{made.id}", " again"))
    measured.observe(made, AttemptOver(Completed()))


def test_a_turn(recorder: Recorder) -> None:
    run(TurnMetrics(recorder), turn(1))
    read = scrape(recorder)
    assert read.value("lango_turn_attempts_total", app="shop", cause="new") == 1
    assert read.value("lango_turn_start_delay_seconds_sum", app="shop") == 0.25
    assert read.value("lango_turn_first_word_seconds_count", app="shop") == 1
    assert (read.value("lango_turn_first_word_seconds_sum", app="shop") or 0) >= 0.25
    assert read.value("lango_turns_ended_total", app="shop", state="completed") == 1
    assert read.value("lango_tool_calls_total", tool="look_up", outcome="ok") == 1
    assert read.value("lango_tool_duration_seconds_count", tool="look_up") == 1


def test_a_request_to_a_model(recorder: Recorder) -> None:
    usage = Usage(input=100, output=20, cached=60, reasoning=5)
    recorder.model_request(
        ModelAttempt("openai", "gpt", 10.0, 14.0, 11.0, usage=usage, request_id="r"), 0.5
    )
    recorder.model_request(
        ModelAttempt("openai", "gpt", 10.0, 11.0, outcome="failed", error="RateLimitError"), None
    )
    read = scrape(recorder)
    assert read.value("lango_model_requests_total", **OPENAI, outcome="completed") == 1
    assert read.value("lango_model_requests_total", **OPENAI, outcome="failed") == 1
    assert read.value("lango_model_errors_total", **OPENAI, error="RateLimitError") == 1
    assert read.value("lango_model_request_duration_seconds_sum", **OPENAI) == 5
    assert read.value("lango_model_first_event_seconds_sum", **OPENAI) == 1
    tokens = {
        dict(labels)["kind"]: value
        for labels, value in read.all("lango_model_tokens_total").items()
    }
    assert tokens == {"input": 100, "output": 20, "cached": 60, "reasoning": 5}
    assert read.value("lango_model_cost_dollars_total", **OPENAI) == 0.5


def test_a_tool_that_never_ran_is_no_label(recorder: Recorder) -> None:
    """A model may call a tool that does not exist by any name, such as a secret of its prompt."""
    measured, made = TurnMetrics(recorder), turn(1)
    measured.observe(made, AttemptBegun(Claim("clm", made, 1, "wrk_1", 60.0, "")))
    for name in ("made_up", "real", "made_up"):
        measured.observe(made, ToolStarted("call", name, {}))
        missing = name == "made_up"
        error = "no such tool" if missing else None
        measured.observe(made, ToolFinished("call", name, None if missing else {}, error=error))
    measured.observe(made, ToolStarted("call", "real", {}))
    measured.observe(made, ToolFinished("call", "real", error="crashed", error_id="err_1"))
    calls = {
        tuple(value for _, value in sorted(labels)): count
        for labels, count in scrape(recorder).all("lango_tool_calls_total").items()
    }
    assert calls == {("error", "other"): 2, ("ok", "real"): 1, ("error", "real"): 1}


def test_a_turn_that_another_worker_owns_has_not_ended(recorder: Recorder) -> None:
    measured, made = TurnMetrics(recorder), turn(1)
    measured.observe(made, AttemptBegun(Claim("clm", made, 1, "wrk_1", 60.0, "")))
    measured.observe(made, AttemptOver(None))
    assert scrape(recorder).all("lango_turns_ended_total") == {}


async def answered(scope: Scope, receive: Receive, send: Send) -> None:
    del receive
    status = 200 if scope["path"].endswith("0") else 404
    if status == 200:
        scope["route"] = type("Route", (), {"path": "/v1/sessions/{session_id}"})
    await send({"type": "http.response.start", "status": status, "headers": []})


async def test_100_000_sessions_do_not_add_series(recorder: Recorder) -> None:
    measured, log = TurnMetrics(recorder), AccessLog(answered)
    logging.getLogger("lango.access").disabled = True

    async def send(message: Message) -> None:
        del message

    async def receive() -> Message:
        return {"type": "http.request"}

    async def serve(number: int) -> None:
        run(measured, turn(number))
        path, method = f"/v1/sessions/ses_{number}", f"GET{number}" if number % 2 else "GET"
        if number % 10 > 1:
            return
        scope: Scope = {"type": "http", "path": path, "method": method, "headers": []}
        await log(scope, receive, send)

    try:
        for number in range(20):
            await serve(number)
        before = scrape(recorder)
        for number in range(20, SESSIONS):
            await serve(number)
    finally:
        logging.getLogger("lango.access").disabled = False
    after = scrape(recorder)
    assert after.value("lango_turns_ended_total", app="shop", state="completed") == SESSIONS
    assert after.samples.keys() == before.samples.keys()
    values = {value for _, labels in after.samples for name, value in labels if name != "le"}
    assert [value for value in values if re.search(r"(ses|turn|key)_\d|-\d", value)] == []


def test_names_from_outside_are_bounded(recorder: Recorder) -> None:
    def drive(first: int, last: int) -> None:
        for number in range(first, last):
            run(TurnMetrics(recorder), turn(number, f"app-{number}"), f"tool-{number}")
            attempt = ModelAttempt(
                f"p{number}", f"m{number}", 1.0, 2.0, outcome="failed", error=f"E{number}"
            )
            recorder.model_request(attempt, 0.1)
            recorder.request_answered(f"/{number}", f"M{number}", 200, 0.1)
            recorder.turn_ended("shop", "failed", f"E{number}", 1.0)

    drive(0, 1_000)
    before = scrape(recorder).samples.keys()
    drive(1_000, 2_000)
    assert scrape(recorder).samples.keys() == before
    assert len(before) < 20_000


def test_the_database_gauges_are_those_of_the_last_query(recorder: Recorder) -> None:
    queued = OpenTurnsOfApp("shop", "queued", 3, 12.5)
    lost = OpenTurnsOfApp("shop", "running", 1)
    deaths = (OpenTurnsOfApp("shop", "running", 2),)
    recorder.show_fleet(FleetState((queued,), (lost,), 2, 1, 0.5, deaths))
    read = scrape(recorder)
    assert read.value("lango_database_up") == 1
    assert read.value("lango_turns_open", app="shop", state="queued") == 3
    assert read.value("lango_queue_oldest_seconds", app="shop") == 12.5
    assert read.value("lango_turns_without_worker", app="shop") == 1
    assert read.value("lango_turn_most_workers_lost", app="shop") == 2
    assert read.value("lango_workers", state="alive") == 2
    assert read.value("lango_workers_oldest_heartbeat_seconds") == 0.5
    recorder.show_fleet(None)
    read = scrape(recorder)
    assert read.value("lango_database_up") == 0
    gone = ("turns_open", "queue_oldest_seconds", "turns_without_worker", "workers")
    for name in (*gone, "turn_most_workers_lost"):
        assert read.all(f"lango_{name}") == {}


def test_the_series_of_an_expected_app_begin_at_zero(recorder: Recorder) -> None:
    recorder.expect(["shop"])
    read = scrape(recorder)
    assert read.value("lango_turn_failures_total", app="shop", error="WorkerLostError") == 0
    assert read.value("lango_turn_attempts_total", app="shop", cause="worker_lost") == 0
    assert read.value("lango_turns_ended_total", app="shop", state="failed") == 0
    assert read.value("lango_turn_takeover_seconds_bucket", app="shop", le="+Inf") == 0
    recorder.attempt_began("shop", "worker_lost", 6.0)
    recorder.turn_ended("shop", "failed", "WorkerLostError", 1.0)
    assert scrape(recorder).samples.keys() == read.samples.keys()


def test_a_count_that_fell_to_none_is_zero(recorder: Recorder) -> None:
    queued = OpenTurnsOfApp("shop", "queued", 3, 12.5)
    for turns in ((queued,), ()):
        recorder.show_fleet(FleetState(turns))
    read = scrape(recorder)
    assert read.value("lango_turns_open", app="shop", state="queued") == 0
    assert read.value("lango_turns_without_worker", app="shop") == 0
    assert read.value("lango_turn_most_workers_lost", app="shop") == 0
    assert read.all("lango_queue_oldest_seconds") == {}


def test_apps_that_share_a_label_have_the_oldest_of_their_ages(recorder: Recorder) -> None:
    groups = [OpenTurnsOfApp(f"app-{n}", "queued", 1, float(n % 60)) for n in range(70)]
    recorder.show_fleet(FleetState(tuple(groups)))
    read = scrape(recorder)
    assert read.value("lango_turns_open", app="other", state="queued") == 20
    assert read.value("lango_queue_oldest_seconds", app="other") == 59


@pytest.mark.skipif(not HAS_PROMETHEUS, reason="promtool is not installed")
def test_names_follow_the_rules_of_prometheus(recorder: Recorder) -> None:
    run(TurnMetrics(recorder), turn(1))
    recorder.model_request(ModelAttempt("openai", "gpt", 1.0, 2.0, 1.5, usage=Usage(1, 1)), 0.1)
    recorder.request_answered("/", "GET", 200, 0.1)
    recorder.turn_ended("shop", "failed", "WorkerLostError", 1.0)
    ours = [
        f"{line}\n"
        for line in recorder.render().decode().splitlines()
        if "process_" not in line and "python_" not in line
    ]
    checked = subprocess.run(
        [str(PROMTOOL), "check", "metrics"],
        input="".join(ours),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
