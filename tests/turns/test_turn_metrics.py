"""What workers measure of real turns: attempts, takeovers, tools, ends."""

import asyncio

from faults.turns.processes import workers
from faults.turns.workspace import TurnProcess, Workspace, turn_process
from lango.core.messages.messages import ToolCall
from lango.providers.scripted import Reply, ScriptedProvider
from lango.turns.worker import TurnWorker
from tests.support.scrapes import recording, scrape

PATIENCE = 300.0


async def test_turns_that_end_well_badly_and_with_a_question(process: TurnProcess) -> None:
    app = process.workspace.app
    with recording() as recorder:
        async with process.worker():
            for message in (
                'call step {"name": "a"}',
                'call pay {"amount": 5}',
            ):
                turn = await process.say(message, session=message[:9])
                await process.turns.wait(turn)
            scheduled = await process.say("hi", session="late", time_limit=1e-9)
            ended = await process.turns.wait(scheduled)
    read = scrape(recorder)
    assert read.value("lango_turns_ended_total", app=app, state="completed") == 1
    assert read.value("lango_turns_ended_total", app=app, state="input_required") == 1
    assert ended.state == "failed"
    assert read.value("lango_turn_failures_total", app=app, error="TurnTimeoutError") == 1
    assert read.value("lango_turn_attempts_total", app=app, cause="new") == 3
    assert read.value("lango_turn_start_delay_seconds_count", app=app) == 3
    assert (read.value("lango_turn_first_word_seconds_count", app=app) or 0) >= 1
    assert read.value("lango_tool_calls_total", tool="step", outcome="ok") == 1


async def test_a_tool_that_does_not_exist(process: TurnProcess) -> None:
    calls = ToolCall("call-1", "canary_7f3a", "{}"), ToolCall("call-2", "step", '{"name": "a"}')
    provider = ScriptedProvider([Reply(calls=calls), "Done."])
    with recording() as recorder:
        async with process.worker(provider=provider):
            ended = await process.turns.wait(await process.say("go"))
    read = scrape(recorder)
    assert ended.state == "completed"
    assert read.value("lango_tool_calls_total", tool="step", outcome="ok") == 1
    assert read.value("lango_tool_calls_total", tool="other", outcome="error") == 1
    assert "canary_7f3a" not in read.text


async def test_a_takeover_from_a_killed_worker(process: TurnProcess) -> None:
    app = process.workspace.app
    with recording() as recorder, workers(process.workspace) as (doomed,):
        turn = await process.say('call hold {"name": "go"}')
        await process.workspace.effects.wait(lambda said: "held go" in said)
        doomed.kill()
        async with process.worker():
            (process.workspace.folder / "go").touch()
            async with asyncio.timeout(PATIENCE):
                ended = await process.turns.wait(turn)
    read = scrape(recorder)
    assert (ended.state, ended.attempts) == ("completed", 2)
    assert read.value("lango_turn_attempts_total", app=app, cause="worker_lost") == 1
    assert read.value("lango_turn_takeover_seconds_count", app=app) == 1
    assert (read.value("lango_turn_takeover_seconds_sum", app=app) or 0) >= 1.5  # it was silent
    # The start was the first worker's.
    assert read.value("lango_turn_start_delay_seconds_count", app=app) == 0


async def test_a_turn_that_was_handed_over_lost_no_worker(workspace: Workspace) -> None:
    with recording() as recorder:
        async with (
            turn_process(workspace, dead_after=60.0) as first,
            turn_process(workspace, dead_after=60.0) as next_,
        ):
            leaving = first.worker()
            await leaving.start()
            turn = await first.say('call hold {"name": "go"}')
            await workspace.effects.wait(lambda said: "held go" in said)
            await leaving.stop(0)
            async with next_.worker():
                (workspace.folder / "go").touch()
                ended = await next_.turns.wait(turn)
    read = scrape(recorder)
    assert ended.attempts == 2
    assert read.value("lango_turn_attempts_total", app=workspace.app, cause="handed_over") == 1
    assert read.value("lango_turn_takeover_seconds_count", app=workspace.app) == 0
    # The attempt that was given up is no end of the turn.
    assert read.value("lango_turns_ended_total", app=workspace.app, state="completed") == 1


async def test_without_metrics_nothing_observes(process: TurnProcess) -> None:
    worker: TurnWorker = process.worker()
    async with worker:
        await process.turns.wait(await process.say("hi"))
    assert worker.heartbeat_age < PATIENCE
    with recording() as recorder:
        read = scrape(recorder)
    assert read.all("lango_turns_ended_total") == {}
