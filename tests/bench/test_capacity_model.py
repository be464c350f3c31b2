"""The capacity model: its arithmetic, its units, and what more turns do to a plan."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.capacity import figures
from bench.capacity.area import SCALES, limits, measured_model, needs
from bench.capacity.model import (
    CapacityModel,
    Cost,
    DatabaseServer,
    LogWrites,
    Notices,
    Processes,
    TurnCosts,
    Workload,
)
from lango.store.db.database import POOL_OVERFLOW, POOL_SIZE
from lango.turns.log.writer import GATHER
from lango.turns.worker import WorkerOptions

FIRST = Cost(0.01, 0.005, 0.004, 8_000, 5_000, 1_000, 2.0)
STEP = Cost(0.02, 0.0, 0.003, 4_000, 3_000, 500, 0.5)
DELTA = Cost(0.001, 0.0005, 0.0001, 100, 0, 200)
COSTS = TurnCosts(FIRST, STEP, DELTA)
NOTICES = Notices(cpu=0.0001, cpu_per_listener=0.00001, most=1_000)
WRITES = LogWrites(most=20, cpu=0.0002)
WORKLOAD = Workload(tool_steps=2, deltas=10, model_median=5.0, model_sigma=0.0)


def model(server: DatabaseServer | None = None) -> CapacityModel:
    return CapacityModel(COSTS, NOTICES, WRITES, workload=WORKLOAD, server=server)


def test_a_turn_is_the_sum_of_its_parts() -> None:
    turn = COSTS.of(WORKLOAD)
    assert turn.worker_cpu == pytest.approx(0.01 + 2 * 0.02 + 10 * 0.001)
    assert turn.server_cpu == pytest.approx(0.005 + 10 * 0.0005)
    assert turn.database_cpu == pytest.approx(0.004 + 2 * 0.003 + 10 * 0.0001)
    assert turn.wal == pytest.approx(8_000 + 2 * 4_000 + 10 * 100)
    assert turn.notices == pytest.approx(3.0)


def test_a_plan_by_hand() -> None:
    """36,000 turns an hour are 10 a second, of 0.06 s of a worker and 5 s at a model each."""
    plan = model().plan(36_000)
    assert plan.rate == 10
    assert plan.concurrent == pytest.approx(50)
    assert plan.workers == 2  # 10 * 0.06 / 0.5 is 1.2 processes; 50 / 100 / 0.5 is 1
    assert plan.servers == 2  # 10 * 0.01 / 0.5 is 0.2: the least is two
    assert plan.process_cores == pytest.approx(10 * (0.06 + 0.01))
    writes = 2 * 20  # of logs a second: two workers write less often than 100 deltas come
    notices = 10 * 3.0 + writes
    each = 0.0001 + 4 * 0.00001
    assert plan.notice_cores == pytest.approx(notices * each)
    assert plan.database_cores == pytest.approx(10 * 0.011 + writes * 0.0002 + notices * each)
    assert plan.databases == 1
    assert plan.connections == 4 * 17
    assert plan.wal == pytest.approx(10 * 17_000)
    assert plan.kept_per_day == pytest.approx(10 * 86_400 * 11_000)
    assert plan.log == pytest.approx(10 * 86_400 * 4_000)
    assert plan.shares["commits with a notice"] == pytest.approx(notices / 1_000)


def test_the_first_limit_is_named_and_divided() -> None:
    plan = model(server=DatabaseServer(wal=1e6, disk=1e18)).plan(36_000 * 20)
    assert plan.wal == pytest.approx(3.4e6)
    assert plan.shares["WAL"] == pytest.approx(3.4)
    assert plan.breaks_first == "WAL"
    assert plan.databases == 4


def test_connections_alone_do_not_ask_for_a_database() -> None:
    plan = model(server=DatabaseServer(connections=10)).plan(36_000)
    assert (plan.breaks_first, plan.databases) == ("connections", 1)


@given(st.lists(st.floats(1.0, 1e9), min_size=2, max_size=5))
def test_more_turns_need_no_less_of_anything(rates: list[float]) -> None:
    plans = [measured_model().plan(rate) for rate in sorted(rates)]
    for fewer, more in pairwise(plans):
        for name in ("workers", "servers", "databases", "connections", "wal", "kept_per_day"):
            assert getattr(fewer, name) <= getattr(more, name)
        assert all(fewer.shares[name] <= share * 1.0001 for name, share in more.shares.items())


@given(st.floats(1.0, 1e9))
def test_no_database_is_asked_for_more_than_its_limits(rate: float) -> None:
    capacity = measured_model()
    plan = capacity.plan(rate)
    limit = capacity.server.cores * capacity.server.cores_used
    assert plan.database_cores / plan.databases <= limit * 1.0001
    assert plan.wal / plan.databases <= capacity.server.wal * 1.0001


@given(st.integers(0, 10), st.integers(0, 500))
def test_larger_turns_cost_no_less(steps: int, deltas: int) -> None:
    costs = figures.turn_costs()
    small = costs.of(Workload(tool_steps=steps, deltas=deltas))
    for larger in (Workload(tool_steps=steps + 1, deltas=deltas), Workload(steps, deltas + 1)):
        turn = costs.of(larger)
        assert turn.worker_cpu >= small.worker_cpu
        assert turn.database_cpu >= small.database_cpu
        assert turn.log >= small.log


def test_times_are_seconds_and_sizes_bytes() -> None:
    """A turn costs milliseconds and kilobytes: a wrong unit is a thousand times off."""
    turn = measured_model().turn
    assert 1e-3 < turn.worker_cpu < 1.0
    assert 1e-4 < turn.database_cpu < 0.1
    assert 1e3 < turn.wal < 1e6
    assert 1e3 < turn.kept < 1e5
    assert 1e-6 < figures.notices().cpu < 1e-2


def test_the_mean_of_a_lognormal_wait() -> None:
    assert Workload(model_sigma=0.0).model_mean == pytest.approx(6.0)
    assert Workload(model_sigma=0.8).model_mean == pytest.approx(6.0 * math.exp(0.32))


def test_defaults_are_those_of_the_package() -> None:
    listener, heartbeat = 1, 1
    assert Processes().connections == POOL_SIZE + POOL_OVERFLOW + listener + heartbeat
    assert Processes().concurrency == WorkerOptions().concurrency
    assert DatabaseServer().event_retention == WorkerOptions().event_retention_seconds
    assert figures.LOG_WRITES_PER_SECOND.value == 1 / GATHER


def test_the_page_has_the_tables_of_the_model() -> None:
    """If this fails, run `python -m bench capacity` and copy them."""
    page = (Path(__file__).parents[2] / "docs/explanation/scale.md").read_text(encoding="utf-8")
    plans = {turns: measured_model().plan(turns) for turns in SCALES}
    for table in (needs(plans), limits(plans)):
        lines = str(table).strip().split("\n")[2:]
        assert "\n".join(lines) in page
