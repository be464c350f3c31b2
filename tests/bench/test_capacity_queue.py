"""The simulation of arrivals: it agrees with the M/M/c formula, and is fair to tenants."""

import random
from collections.abc import Callable

import pytest

from bench.capacity.arrivals import (
    Bursts,
    Load,
    Lognormal,
    Waits,
    arrivals,
    erlang_c,
    mean_wait,
    simulate,
)


def exponential(mean: float) -> Callable[[random.Random], float]:
    return lambda rng: rng.expovariate(1 / mean)


def test_erlang_c_by_hand() -> None:
    assert erlang_c(0.5, 1) == pytest.approx(0.5)  # M/M/1: the part of the time it is busy
    assert erlang_c(1.0, 2) == pytest.approx(1 / 3)
    assert mean_wait(0.5, 1.0, 1) == pytest.approx(1.0)


@pytest.mark.parametrize(("servers", "used"), [(1, 0.5), (5, 0.8), (20, 0.8)])
def test_the_simulation_agrees_with_the_formula(servers: int, used: float) -> None:
    rate = servers * used
    found = simulate(Load(rate, 150_000 / rate), servers, exponential(1.0), seed=1)
    assert found.all.mean == pytest.approx(mean_wait(rate, 1.0, servers), rel=0.1)
    assert found.used == pytest.approx(used, rel=0.03)


def test_fair_dispatch_does_not_change_the_average_wait() -> None:
    load = Load(4.0, 20_000, tenants=10)
    found = simulate(load, 5, exponential(1.0), seed=2)
    assert found.all.mean == pytest.approx(mean_wait(4.0, 1.0, 5), rel=0.15)


def test_a_seed_gives_the_same_waits() -> None:
    load = Load(10.0, 200, tenants=3, bursts=Bursts(factor=3.0))
    first, again, other = (simulate(load, 12, exponential(1.0), seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_arrivals_keep_their_average_rate_despite_bursts() -> None:
    load = Load(20.0, 50_000, tenants=4, bursts=Bursts(factor=3.0, seconds=30, every=300))
    moments = [moment for moment, _ in arrivals(load, random.Random(5))]
    assert len(moments) == pytest.approx(20.0 * 50_000, rel=0.03)
    assert moments == sorted(moments)


def test_the_bursts_of_one_tenant_do_not_delay_the_others() -> None:
    load = Load(10.0, 5_000, tenants=10, bursts=Bursts(factor=6.0, seconds=60, every=600))
    found = simulate(load, 20, exponential(1.0), seed=6)
    assert found.all.quantile(0.95) > 5.0
    assert found.other_tenants.quantile(0.95) < 1.0


def test_more_slots_wait_no_longer() -> None:
    load = Load(10.0, 2_000, bursts=Bursts(factor=2.0))
    few, more = (simulate(load, slots, exponential(1.0), seed=7) for slots in (11, 16))
    assert more.all.quantile(0.95) < few.all.quantile(0.95)


def test_dispatch_is_part_of_the_wait() -> None:
    found = simulate(Load(1.0, 100), 100, exponential(1.0), seed=8, dispatch=lambda _: 0.25)
    assert list(found.all.waits) == pytest.approx([0.25] * len(found.all.waits))


def test_a_lognormal_has_its_quantiles() -> None:
    rng, times = random.Random(9), Lognormal(4.8, 17.5)
    drawn = Waits(sorted(times.draw(rng) for _ in range(20_000)))
    assert drawn.quantile(0.5) == pytest.approx(4.8, rel=0.05)
    assert drawn.quantile(0.95) == pytest.approx(17.5, rel=0.05)
