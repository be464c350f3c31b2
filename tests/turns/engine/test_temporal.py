"""Temporal as an engine: what it shows, cancels both ways, and its outages."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.bridge.proto.activity_task import ActivityTask
from temporalio.bridge.worker import Worker as BridgeWorker
from temporalio.client import ActivityExecutionDescription as Described
from temporalio.client import ActivityExecutionStatus as Status
from temporalio.client import (
    ActivityFailureError,
    Client,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from faults.carriers.temporal_server import TemporalServer, temporal_server
from faults.database.own_cluster import free_port
from lango.errors import ConfigError, StoreUnavailableError
from lango.store.db.database import Database
from lango.store.turns.rows import Head, Turn
from lango.store.turns.submit import SqlTurnStore
from lango.testing.engine_suite import FAIL, HOLD, QUICK, REASON, EngineProcess, Fleet
from lango.turns.bus.choose import namespace_of
from lango.turns.engine.cancel import cancel_turn
from lango.turns.engine.choose import engine_of
from lango.turns.engine.database import LocalEngine
from lango.turns.engine.head_messages import decode_head, encode_head
from lango.turns.engine.protocol import Engine
from lango.turns.engine.temporal import TemporalEngine
from lango.turns.engine.temporal_client import ACTIVITY, address_of

DEAD_AFTER = 1.5


@asynccontextmanager
async def fleet_on(postgres_url: str, temporal_url: str) -> AsyncGenerator[Fleet]:
    async with Fleet(
        postgres_url, lambda db: TemporalEngine(db, temporal_url, dead_after=DEAD_AFTER)
    ) as fleet:
        yield fleet


@pytest_asyncio.fixture
async def fleet(postgres_url: str, temporal: TemporalServer) -> AsyncIterator[Fleet]:
    """Processes on the server that tests share."""
    async with fleet_on(postgres_url, temporal.url) as made:
        yield made


@pytest_asyncio.fixture
async def client(temporal: TemporalServer) -> Client:
    """A client of Temporal's own, as an operator has it."""
    return await Client.connect(temporal.address)


async def until(client: Client, turn: str, is_so: Callable[[Described], bool]) -> Described:
    """What Temporal shows for a turn, once it is so."""
    for _ in range(400):
        with suppress(RPCError):  # it may not be dispatched yet
            described = await client.get_activity_handle(turn).describe()
            if is_so(described):
                return described
        await asyncio.sleep(0.1)
    raise TimeoutError(turn)


async def shown(client: Client, turn: str) -> Status:
    """The status that Temporal shows for a turn at its end."""
    described = await until(client, turn, lambda found: found.status != Status.RUNNING)
    return described.status


async def opened(client: Client, turn: str) -> None:
    """Wait until a turn has an activity."""
    await until(client, turn, lambda _: True)


async def error_of(client: Client, turn: str) -> ApplicationError:
    """The error that Temporal has for a turn."""
    with pytest.raises(ActivityFailureError) as found:
        await client.get_activity_handle(turn).result()
    cause = found.value.__cause__
    assert isinstance(cause, ApplicationError)
    return cause


async def test_temporal_shows_the_state_and_the_error_of_a_turn(
    fleet: Fleet, client: Client
) -> None:
    process = await fleet.process()
    await process.worker()
    completed, failed = await process.submit(QUICK), await process.submit(FAIL)
    await process.ended(completed, failed)
    assert await shown(client, completed) == Status.COMPLETED
    result = await client.get_activity_handle(completed).result()
    assert result == {"turn": completed, "state": "completed"}
    assert await shown(client, failed) == Status.FAILED
    error = await error_of(client, failed)
    assert (error.type, error.message) == ("TurnError", REASON)


async def test_a_turn_cancelled_in_lango_is_cancelled_in_temporal(
    fleet: Fleet, client: Client
) -> None:
    process = await fleet.process()
    queued = await process.submit(session="queued")
    await opened(client, queued)
    await process.turns.cancel(queued)
    assert await shown(client, queued) == Status.CANCELED
    await process.worker()
    running = await process.submit(HOLD)
    await fleet.until_started(running)
    await process.turns.cancel(running)
    assert await shown(client, running) == Status.CANCELED
    assert (await process.turns.get(running)).state == "cancelled"


@pytest.fixture
def soon_uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process soon checks again whether Temporal has what it had accepted."""
    monkeypatch.setattr("lango.turns.engine.temporal_client._CERTAIN_FOR", 0.5)


@pytest.mark.usefixtures("soon_uncertain")
async def test_a_turn_whose_activity_was_terminated_is_dispatched_again(
    fleet: Fleet, client: Client
) -> None:
    process = await fleet.process()
    turn = await process.submit()
    await opened(client, turn)
    await client.get_activity_handle(turn).terminate()
    await process.worker()  # in the process whose dispatch Temporal had accepted
    (ended,) = await process.ended(turn)
    assert (ended.state, ended.attempts) == ("completed", 1)


@pytest.mark.usefixtures("soon_uncertain")
async def test_an_activity_cancelled_in_temporal_cancels_its_turn(
    fleet: Fleet, client: Client
) -> None:
    process = await fleet.process()
    queued = await process.submit(session="queued")
    await opened(client, queued)
    await client.get_activity_handle(queued).cancel()
    await process.worker()  # a sweep finds the turn, and that its activity was cancelled
    running = await process.submit(HOLD)
    await fleet.until_started(running)
    await client.get_activity_handle(running).cancel()
    ended = await process.ended(queued, running)
    assert [turn.state for turn in ended] == ["cancelled", "cancelled"]
    assert not fleet.started(queued)
    assert await shown(client, running) == Status.CANCELED


async def test_a_cancellation_in_temporal_outlasts_an_outage_of_the_database(
    fleet: Fleet, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await fleet.process()
    await process.worker()
    turn = await process.submit(HOLD)
    await fleet.until_started(turn)
    tries = 0

    async def cancel(turns: SqlTurnStore, engine: Engine, tenant: str, turn_id: str) -> Turn:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreUnavailableError
        return await cancel_turn(turns, engine, tenant, turn_id)

    monkeypatch.setattr("lango.turns.engine.temporal_activity.cancel_turn", cancel)
    await client.get_activity_handle(turn).cancel()
    (ended,) = await process.ended(turn)
    assert ended.state == "cancelled"
    assert await shown(client, turn) == Status.CANCELED


async def test_a_worker_that_cannot_poll_once_polls_again_while_its_turns_run(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await fleet.process()
    await process.worker()
    running = await process.submit(HOLD)
    await fleet.until_started(running)
    poll, has_failed = BridgeWorker.poll_activity_task, asyncio.Event()

    async def failing_once(worker: BridgeWorker) -> ActivityTask:
        if not has_failed.is_set():
            has_failed.set()
            raise RuntimeError("Poll failure: permission denied")
        return await poll(worker)

    monkeypatch.setattr(BridgeWorker, "poll_activity_task", failing_once)
    await process.ended(await process.submit(QUICK, session="polled before"))
    await has_failed.wait()
    later = await process.submit(QUICK, session="later")
    (ended,) = await process.ended(later)
    assert ended.state == "completed"
    fleet.app.released.set()
    await process.ended(running)


async def test_a_terminated_activity_does_not_end_its_turn(fleet: Fleet, client: Client) -> None:
    process = await fleet.process()
    await process.worker()
    turn = await process.submit(HOLD)
    await fleet.until_started(turn)
    await client.get_activity_handle(turn).terminate()
    await asyncio.sleep(3)  # its worker learns of it by a heartbeat
    fleet.app.released.set()
    (ended,) = await process.ended(turn)
    assert (ended.state, ended.attempts) == ("completed", 1)


async def test_a_message_of_another_version_is_left_to_another_worker(
    fleet: Fleet, client: Client
) -> None:
    process = await fleet.process()
    await process.worker()
    queue = f"{namespace_of(process.store.database)}/{fleet.name}"
    turn = f"turn_{fleet.name}"
    handle = await client.start_activity(
        ACTIVITY,
        {"v": 2, "sessions": [1]},
        id=turn,
        task_queue=queue,
        start_to_close_timeout=timedelta(minutes=1),
    )
    tried = await until(client, turn, lambda found: found.last_failure is not None)
    assert tried.status == Status.RUNNING
    await handle.terminate()


async def test_a_deleted_session_ends_its_activities(fleet: Fleet, client: Client) -> None:
    process = await fleet.process()
    turn = await process.submit()
    await opened(client, turn)
    await process.store.delete((await process.turns.get(turn)).session)
    await process.worker()
    assert await shown(client, turn) == Status.COMPLETED


async def test_turns_outlast_a_restart_of_temporal(postgres_url: str) -> None:
    with temporal_server() as server:
        await server.start()
        async with fleet_on(postgres_url, server.url) as fleet:
            process, there = await fleet.process(), await fleet.process()
            await there.worker()
            running = await process.submit(HOLD)
            await fleet.until_started(running)
            server.kill()
            waiting = await process.submit(session="waiting")
            fleet.app.released.set()
            (ended,) = await process.ended(running)  # a running turn does not need Temporal
            assert (ended.state, ended.attempts) == ("completed", 1)
            assert (await process.turns.get(waiting)).state == "queued"
            await server.start()
            (ended,) = await process.ended(waiting)
            assert (ended.state, ended.attempts) == ("completed", 1)


async def test_a_turn_that_outlasts_its_heartbeats_is_not_run_twice(postgres_url: str) -> None:
    with temporal_server() as server:
        await server.start()
        async with fleet_on(postgres_url, server.url) as fleet:
            process, there = await fleet.process(), await fleet.process()
            await process.worker()
            turn = await process.submit(HOLD)
            await fleet.until_started(turn)
            server.kill()
            await asyncio.sleep(6)  # longer than a heartbeat's timeout
            await server.start()
            await there.worker()
            client = await Client.connect(server.address)
            await until(client, turn, lambda found: found.attempt > 1)
            fleet.app.released.set()
            (ended,) = await process.ended(turn)
            assert (ended.state, ended.attempts) == ("completed", 1)
            assert await shown(client, turn) == Status.COMPLETED


async def test_processes_start_and_stop_while_temporal_is_away(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with fleet_on(postgres_url, f"temporal://127.0.0.1:{free_port()}") as fleet:
        process = await fleet.process()
        worker = await process.worker()
        turn = await process.submit()
        await fleet.until(lambda: "does not answer" in caplog.text, "The log does not say so")
        await worker.stop()
        assert (await process.turns.get(turn)).state == "queued"
        await process.turns.cancel(turn)  # other tests count what is left in their database


async def test_temporal_may_come_later(postgres_url: str) -> None:
    with temporal_server() as server:
        async with fleet_on(postgres_url, server.url) as fleet:
            process: EngineProcess = await fleet.process()
            await process.worker()
            turn = await process.submit()
            await server.start()
            await process.ended(turn)


def test_heads_as_messages() -> None:
    head = Head(7, "app", "tenant", "turn_1", run_at=1.5)
    assert decode_head(encode_head(head)) == head
    assert decode_head({**encode_head(head), "v": 2}) is None
    assert decode_head({"v": 1}) is None
    assert decode_head("") is None


def test_addresses() -> None:
    assert address_of("temporal://host:7000/space") == ("host:7000", "space", None, False)
    assert address_of("temporals://:key@host") == ("host:7233", "default", "key", True)
    for wrong in ("temporal://", "temporal://host:x/space", "temporal://host/a/b"):
        with pytest.raises(ConfigError):
            address_of(wrong)


async def test_a_setting_chooses_the_engine(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    assert isinstance(engine_of("database", "database", database), LocalEngine)
    url = "temporal://127.0.0.1:7233/default"
    assert isinstance(engine_of(url, "database", database), TemporalEngine)
    with pytest.raises(ConfigError, match="Write `database` or"):
        engine_of("restate://host", "database", database)
