"""Interleaved rounds, and estimates of their ratios."""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

K = TypeVar("K")

MIN_ROUNDS: Final = 15
_RESAMPLES: Final = 4_000
_SEED: Final = 20


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one contender: wall and client CPU seconds per operation."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % interval; an exact figure has an interval of no width."""

    point: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Interval:
        """A figure that was counted, not sampled."""
        return cls(value, value, value)

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.point:,.2f}"
        return f"{self.point:.2f} [{self.low:.2f}, {self.high:.2f}]"


class Stopwatch:
    """Wall and process CPU time of the operations inside its block."""

    def __init__(self, operations: int) -> None:
        self._operations = operations
        self._wall = self._cpu = 0.0

    def __enter__(self) -> Stopwatch:
        gc.collect()  # garbage of earlier rounds must not count as a cost of this one
        self._cpu = time.process_time()
        self._wall = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._wall = time.perf_counter() - self._wall
        self._cpu = time.process_time() - self._cpu

    @property
    def sample(self) -> Sample:
        """The time of one operation."""
        return Sample(self._wall / self._operations, self._cpu / self._operations)


async def interleave(
    rounders: Mapping[K, Callable[[], Awaitable[Sample]]],
    rounds: int,
    slow: Collection[K] = (),
) -> dict[K, list[Sample]]:
    """Run every rounder once per round, in a new order each time, after one round to warm up.

    Slow ones, which no target is about, run in no more than the least number of rounds.
    """
    order = list(rounders)
    shuffle = random.Random(_SEED)
    samples: dict[K, list[Sample]] = {key: [] for key in order}
    gc.collect()
    gc.freeze()  # modules and staged data: looked through each time, they would be most of a run
    try:
        for number in range(rounds + 1):
            shuffle.shuffle(order)
            for key in order:
                if number > MIN_ROUNDS and key in slow:
                    continue
                sample = await rounders[key]()
                if number:
                    samples[key].append(sample)
    finally:
        gc.unfreeze()
    return samples


def wall(samples: Sequence[Sample]) -> list[float]:
    """The wall time of each round."""
    return [sample.wall for sample in samples]


def cpu(samples: Sequence[Sample]) -> list[float]:
    """The CPU time of each round."""
    return [sample.cpu for sample in samples]


def divide(top: Sequence[float], bottom: Sequence[float]) -> list[float]:
    """The ratio of two contenders, round by round, for as many as both ran."""
    return [a / b for a, b in zip(top, bottom, strict=False)]


def estimate(ratios: Sequence[float]) -> Interval:
    """The median of the rounds' ratios with its 95 % bootstrap interval."""
    draw = random.Random(_SEED)
    medians = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES))
    low, high = int(_RESAMPLES * 0.025), int(_RESAMPLES * 0.975) - 1
    return Interval(median(ratios), medians[low], medians[high])
