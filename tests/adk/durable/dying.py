"""Sweeps that die in this process."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import cast
from uuid import uuid4

import pytest

from faults.recovery import deaths, kill_shapes, shapes
from faults.recovery.deaths import Died
from lango.store.sessions.entries import SessionKey
from lango.testing.kill_checks import Snapshot, snapshot
from lango.testing.kill_trials import APP, USER, Sweep, run_turns


def sweep_of(shape: str, url: str) -> Sweep:
    chosen = (kill_shapes.SHAPES | shapes.SHAPES)[shape]
    return Sweep(chosen.make, chosen.turns, url, chosen.state or {})


def new_key() -> SessionKey:
    return SessionKey(f"tenant-{uuid4().hex}", APP, USER, "session")


@contextmanager
def death(point: str, times: int) -> Generator[None]:
    """Die at the so-manieth passing of a failpoint, and at every failpoint from then on."""
    with deaths.death(point, times) as died:
        yield
    assert died.happened, f"{point} was passed {died.passed[point]} times only"


async def undisturbed(sweep: Sweep) -> Snapshot:
    key = new_key()
    await run_turns(sweep, key, f"worker-{key.tenant}", ())
    return await snapshot(sweep.url, key)


async def cut_off(
    sweep: Sweep, key: SessionKey, point: str, times: int = 1, dead: Sequence[str] = ()
) -> str:
    """Begin the turns, or go on with them, and die; the name of the worker that did."""
    worker = f"{key.tenant}-{len(dead)}"
    with death(point, times), pytest.raises(BaseException) as raised:  # noqa: PT011
        await run_turns(sweep, key, worker, dead)
    assert _is_death(raised.value)
    return worker


def _is_death(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        several = cast("BaseExceptionGroup[BaseException]", error)
        return any(_is_death(one) for one in several.exceptions)
    return isinstance(error, Died)


async def resumed(sweep: Sweep, key: SessionKey, *dead: str) -> Snapshot:
    """Go on with what was cut off, to the end."""
    await run_turns(sweep, key, f"{key.tenant}-last", dead)
    return await snapshot(sweep.url, key)
