"""Whether the process lives, and whether it is ready for work."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from pydantic import BaseModel

from lango.store.sessions import SqlSessionStore

_PATIENCE: Final = 5.0  # seconds for the database
Check = Literal["ok", "failing", "starting", "stopping", "none here"]


class Runs(Protocol):
    """A worker, as far as this asks."""

    @property
    def is_running(self) -> bool:
        """Whether it takes turns."""
        ...


@dataclass
class Health:
    """What the process knows of itself."""

    has_worker: bool = False  # or will have
    worker: Runs | None = None
    is_warm: bool = False
    is_stopping: bool = False

    @property
    def of_worker(self) -> Check:
        """The state of the worker in this process."""
        if not self.has_worker:
            return "none here"
        if self.worker is None:
            return "starting"
        return "ok" if self.worker.is_running else "failing"


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """What must be well before requests are sent here."""

    ready: bool
    server: Check
    store: Check
    worker: Check
    warm_up: Check


async def readiness(health: Health, store: SqlSessionStore) -> Readiness:
    """The state of everything, the database asked now."""
    checks: dict[str, Check] = {
        "server": "stopping" if health.is_stopping else "ok",
        "store": "ok" if await _answers(store) else "failing",
        "worker": health.of_worker,
        "warm_up": "ok" if health.is_warm else "starting",
    }
    ready = set(checks.values()) <= {"ok", "none here"}
    return Readiness.model_validate({"ready": ready, **checks})


async def _answers(store: SqlSessionStore) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE):
            await store.check()
    except Exception:  # noqa: BLE001 - whatever it is, the store is not ready
        return False
    return True
