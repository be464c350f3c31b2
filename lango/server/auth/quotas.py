"""Quotas of a tenant: open turns, tokens of its history, and bytes of files.

Each process reads a tenant's usage from the database at most once a second, and adds the turns and
files that it accepts in between. Together, processes can exceed a quota by what they accept in one
second. The history grows while turns run: it is read every ten seconds, and turns that have been
accepted may exceed the quota.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from lango.config.server import QuotaSettings
from lango.errors import QuotaError
from lango.store.allowances import RETRY_AFTER_TURN
from lango.store.db.database import Database
from lango.store.quotas import count_open_turns, sum_file_bytes, sum_history_tokens

FRESH: Final = 1.0
"""Seconds for which a count from the database is used."""
HISTORY_FRESH: Final = 10.0
"""The same for the history: its sum reads a row for each session."""
_RETRY_AFTER_DELETE: Final = 60.0
_MAX_TENANTS: Final = 10_000


@dataclass(slots=True)
class _Usage:
    used: int
    read_at: float


class _Usages:
    """The newest known usage of each tenant."""

    def __init__(self) -> None:
        self._usages: OrderedDict[str, _Usage] = OrderedDict()

    async def of(self, tenant: str, read: Callable[[], Awaitable[int]], fresh: float) -> _Usage:
        """A tenant's usage, read from the database if the known one is older than `fresh`."""
        usage = self._usages.get(tenant)
        if usage is None or time.monotonic() - usage.read_at > fresh:
            read_at = time.monotonic()
            usage = self._usages[tenant] = _Usage(await read(), read_at)
            self._usages.move_to_end(tenant)
            if len(self._usages) > _MAX_TENANTS:
                self._usages.popitem(last=False)
        return usage


class Quotas:
    """Refuses what would take a tenant beyond its quotas."""

    def __init__(self, database: Callable[[], Database], settings: QuotaSettings) -> None:
        self._database = database
        self._settings = settings
        self._turns = _Usages()
        self._bytes = _Usages()
        self._tokens = _Usages()

    async def take_turn(self, tenant: str) -> None:
        """Count one more turn; QuotaError at the quota of open turns or of the history."""
        await self.take_history(tenant)
        limit = self._settings.open_turns
        if limit is None:
            return
        database = self._database()
        usage = await self._turns.of(
            tenant, lambda: count_open_turns(database, tenant, limit), FRESH
        )
        if usage.used >= limit:
            raise QuotaError(
                f"This tenant may have {limit} open turns, and has them. Wait for some to end, or "
                "cancel some.",
                quota="open_turns",
                retry_after=RETRY_AFTER_TURN,
            )
        usage.used += 1

    async def take_history(self, tenant: str, tokens: int = 0) -> None:
        """Count tokens; QuotaError at the quota of the history, or if they would exceed it."""
        limit = self._settings.history_tokens
        if limit is None:
            return
        usage = await self._tokens.of(
            tenant, lambda: sum_history_tokens(self._database(), tenant), HISTORY_FRESH
        )
        if usage.used >= limit or usage.used + tokens > limit:
            raise QuotaError(
                f"The history of this tenant may have {limit} tokens, and has {usage.used}. "
                "Delete sessions that are not needed.",
                quota="history_tokens",
                retry_after=_RETRY_AFTER_DELETE,
            )
        usage.used += tokens

    async def take_bytes(self, tenant: str, size: int) -> None:
        """Count a file; QuotaError if the tenant's files would together exceed their quota."""
        limit = self._settings.file_bytes
        if limit is None:
            return
        usage = await self._bytes.of(
            tenant, lambda: sum_file_bytes(self._database(), tenant), FRESH
        )
        if usage.used + size > limit:
            raise QuotaError(
                f"The files of this tenant may take {limit} bytes, and {usage.used} are taken. "
                "Delete sessions whose files are not needed.",
                quota="file_bytes",
                retry_after=_RETRY_AFTER_DELETE,
            )
        usage.used += size
