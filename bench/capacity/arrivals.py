"""A simulation of arrivals and workers: how long turns wait until they start.

Arrivals are Poisson, at a higher rate during bursts. Each turn belongs to a tenant. A free slot
takes the longest-waiting turn of the tenant with the fewest turns running, as workers do.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_P95: Final = 1.6449  # of the standard normal distribution


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A distribution of times by its median and its 95th percentile, in seconds."""

    median: float
    p95: float

    @property
    def sigma(self) -> float:
        """The standard deviation of the logarithm."""
        return math.log(self.p95 / self.median) / _P95

    def draw(self, rng: random.Random) -> float:
        """A time."""
        return self.median * math.exp(rng.gauss(0.0, self.sigma))


@dataclass(frozen=True, slots=True)
class Bursts:
    """Times of a higher rate. `factor` is that rate against the one between the bursts."""

    factor: float = 1.0
    seconds: float = 30.0  # on average, exponential
    every: float = 300.0  # seconds from the start of one to that of the next, on average

    def calm_rate(self, rate: float) -> float:
        """The rate between bursts, so that the average over all time is `rate`."""
        part = self.seconds / self.every
        return rate / (1 - part + part * self.factor)


@dataclass(frozen=True, slots=True)
class Load:
    """What arrives. The first tenant sends the bursts."""

    rate: float  # turns a second, on average
    seconds: float
    tenants: int = 1
    bursts: Bursts = Bursts()


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds from submit to start, sorted."""

    waits: Sequence[float]

    def quantile(self, part: float) -> float:
        """The wait that this part of the turns does not exceed."""
        return self.waits[min(int(part * len(self.waits)), len(self.waits) - 1)]

    @property
    def mean(self) -> float:
        """The average wait."""
        return sum(self.waits) / len(self.waits)


def arrivals(load: Load, rng: random.Random) -> Iterator[tuple[float, int]]:
    """The moments at which turns are submitted, and the tenants that submit them."""
    calm, bursts = load.bursts.calm_rate(load.rate), load.bursts
    between = bursts.every - bursts.seconds
    now, in_burst, until = 0.0, False, rng.expovariate(1 / between)
    while now < load.seconds:
        extra = calm * (bursts.factor - 1) if in_burst else 0.0
        now += rng.expovariate(calm + extra)
        if now > until:  # the time to the next arrival has no memory: draw it anew
            now, in_burst = until, not in_burst
            until += rng.expovariate(1 / (bursts.seconds if in_burst else between))
            continue
        is_extra = rng.random() * (calm + extra) < extra
        yield now, 0 if is_extra else rng.randrange(load.tenants)


class _Slots:
    """Slots for turns, shared between tenants."""

    def __init__(self, count: int, tenants: int) -> None:
        self.free = count
        self.ends: list[tuple[float, int]] = []  # a heap: when a running turn ends, and its tenant
        self.queues: list[deque[float]] = [deque() for _ in range(tenants)]
        self.running = [0] * tenants
        self.queued = 0
        self._last = 0  # the tenant of the last turn

    def enqueue(self, now: float, tenant: int) -> None:
        self.queues[tenant].append(now)
        self.queued += 1
        self._last = tenant

    def start(self, rng: random.Random) -> tuple[float, int]:
        """Take a slot for the next turn; returns since when it waited, and its tenant."""
        tenant = self._last
        if self.queued > 1 or not self.queues[tenant]:
            waiting = [tenant for tenant, queue in enumerate(self.queues) if queue]
            tenant = min(waiting, key=lambda each: (self.running[each], rng.random()))
        self.free -= 1
        self.queued -= 1
        self.running[tenant] += 1
        return self.queues[tenant].popleft(), tenant

    def end(self) -> float:
        """End the running turn that ends first; returns when."""
        now, tenant = heapq.heappop(self.ends)
        self.free += 1
        self.running[tenant] -= 1
        return now


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulation found."""

    all: Waits
    other_tenants: Waits  # those that send no bursts
    used: float  # the part of the slots that was occupied, on average


def simulate(
    load: Load,
    slots: int,
    service: Callable[[random.Random], float],
    *,
    seed: int,
    dispatch: Callable[[random.Random], float] = lambda _: 0.0,
    warm_up: float = 0.1,
) -> Simulated:
    """Run the load through the slots; the first part of the time, `warm_up`, is not counted.

    `service` draws the time that a turn holds its slot, `dispatch` that between a slot and a turn
    that find each other and the start of the turn.
    """
    rng = random.Random(seed)
    state = _Slots(slots, load.tenants)
    waits: list[tuple[float, int]] = []
    occupied, counted_from = 0.0, warm_up * load.seconds

    def begin(now: float) -> None:
        nonlocal occupied
        while state.free and state.queued:
            since, tenant = state.start(rng)
            delay, length = dispatch(rng), service(rng)
            heapq.heappush(state.ends, (now + delay + length, tenant))
            if since >= counted_from:
                waits.append((now + delay - since, tenant))
                occupied += delay + length

    for now, tenant in arrivals(load, rng):
        while state.ends and state.ends[0][0] <= now:
            begin(state.end())
        state.enqueue(now, tenant)
        begin(now)
    while state.queued:
        begin(state.end())
    others = [wait for wait, tenant in waits if tenant or load.tenants == 1]
    counted = load.seconds * (1 - warm_up)
    return Simulated(
        Waits(sorted(wait for wait, _ in waits)),
        Waits(sorted(others)),
        occupied / (slots * counted),
    )


def erlang_c(load: float, servers: int) -> float:
    """The probability that an arrival of an M/M/c queue waits; `load` is in Erlang."""
    blocked = 1.0  # Erlang B, by its recurrence
    for count in range(1, servers + 1):
        blocked = load * blocked / (count + load * blocked)
    used = load / servers
    return blocked / (1 - used * (1 - blocked))


def mean_wait(rate: float, service: float, servers: int) -> float:
    """The average wait of an M/M/c queue, in seconds."""
    load = rate * service
    return erlang_c(load, servers) * service / (servers - load)
