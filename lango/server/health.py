"""Liveness and readiness of the process."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from math import inf
from typing import Final, Literal

from pydantic import BaseModel

from lango.store.sessions.store import SqlSessionStore
from lango.turns.worker import TurnWorker

logger = logging.getLogger(__name__)

DATABASE_TIMEOUT: Final = 5.0  # seconds for the database
WRITE_EVERY: Final = 4.0
"""Seconds for which the result of a test write is reused: many clients may probe."""
Check = Literal["ok", "failing", "starting", "stopping", "none here"]


class WriteTest:
    """Tests whether the store accepts writes, at most once in WRITE_EVERY seconds."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._tested = -inf
        self._passed = True

    async def passes(self, store: SqlSessionStore) -> bool:
        """The result of the last test, or of a new one if that is too old."""
        async with self._lock:
            if time.monotonic() - self._tested >= WRITE_EVERY:
                passed = await self._run(store)
                self._tested, self._passed = time.monotonic(), passed
            return self._passed

    async def _run(self, store: SqlSessionStore) -> bool:
        try:
            async with asyncio.timeout(DATABASE_TIMEOUT):
                await store.check_writes()
        except Exception as error:  # noqa: BLE001 - any error means that the store is not ready
            if self._passed:
                reason = str(error) or type(error).__name__
                logger.warning("The store takes no writes, so this server is not ready: %s", reason)
            return False
        if not self._passed:
            logger.info("The store takes writes again.")
        return True


@dataclass
class Health:
    """The health of the process."""

    has_worker: bool = False  # or will have one
    worker: TurnWorker | None = None
    is_warm: bool = False
    is_stopping: bool = False
    writes: WriteTest = field(default_factory=WriteTest)

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
    """The checks that must pass before a load balancer sends requests here."""

    ready: bool
    server: Check
    store: Check
    worker: Check
    warm_up: Check


async def readiness(health: Health, store: SqlSessionStore) -> Readiness:
    """The result of all checks. Reads from the database each time, and writes at times."""
    store_checks = await asyncio.gather(_answers(store), health.writes.passes(store))
    checks: dict[str, Check] = {
        "server": "stopping" if health.is_stopping else "ok",
        "store": "ok" if all(store_checks) else "failing",
        "worker": health.of_worker,
        "warm_up": "ok" if health.is_warm else "starting",
    }
    ready = set(checks.values()) <= {"ok", "none here"}
    return Readiness.model_validate({"ready": ready, **checks})


async def _answers(store: SqlSessionStore) -> bool:
    try:
        async with asyncio.timeout(DATABASE_TIMEOUT):
            await store.check()
    except Exception:  # noqa: BLE001 - any error means that the store is not ready
        return False
    return True
