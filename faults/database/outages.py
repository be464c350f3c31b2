"""The kinds of database outage, and how each ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol

from faults.database.full_disk import LimitedFiles, SmallDisk, small_disk
from faults.database.own_cluster import Cluster, own_pair
from faults.database.proxy import Proxy
from faults.harness import Databases
from lango.store.schema import migrate

_MIGRATING: Final = threading.Lock()


class Outage(Protocol):
    """One database with one outage."""

    url: str
    processes: Sequence[int]
    """The processes that use it; set after construction."""
    is_noticed: bool
    """Whether a health check can see the outage; a full disk can still be read."""

    async def begin(self) -> None:
        """Begin the outage; return when the database is away."""
        ...

    async def last(self, seconds: float) -> None:
        """Let the outage last for some seconds."""
        ...

    async def end(self) -> None:
        """End the outage."""
        ...


class _Proxied:
    """A database behind a proxy."""

    is_noticed = True
    processes: Sequence[int] = ()

    def __init__(self, proxy: Proxy) -> None:
        self.url = proxy.url
        self._proxy = proxy

    async def last(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Refused(_Proxied):
    """Connections are reset, and new ones refused."""

    async def begin(self) -> None:
        self._proxy.refuse()

    async def end(self) -> None:
        await self._proxy.accept()


class _Frozen(_Proxied):
    """Connections stay open, but neither they nor new ones get a response."""

    async def begin(self) -> None:
        self._proxy.freeze()

    async def end(self) -> None:
        self._proxy.thaw()


class _Pair(_Proxied):
    """A primary with a synchronous standby."""

    def __init__(self, proxy: Proxy, primary: Cluster, standby: Cluster) -> None:
        super().__init__(proxy)
        self._primary, self._standby = primary, standby


class _ReadOnly(_Pair):
    """The address leads to a standby for a while; connections opened then stay there."""

    async def begin(self) -> None:
        self._proxy.redirect(self._standby.url)
        self._proxy.cut()

    async def end(self) -> None:
        self._proxy.redirect(self._primary.url)


class _FailedOver(_Pair):
    """The primary dies; half of the time nothing answers, then the standby, which is promoted."""

    async def begin(self) -> None:
        await asyncio.to_thread(self._primary.stop)

    async def last(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 2)
        self._proxy.redirect(self._standby.url)
        await asyncio.sleep(seconds / 2)

    async def end(self) -> None:
        await asyncio.to_thread(self._standby.promote)


class _FullDisk:
    """A SQLite file on a disk without free space."""

    is_noticed = False
    processes: Sequence[int] = ()

    def __init__(self, disk: SmallDisk | LimitedFiles) -> None:
        self.url = f"sqlite:///{disk.folder / 'lango.db'}"
        self._disk = disk

    async def begin(self) -> None:
        self._disk.fill(self.processes)

    async def last(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def end(self) -> None:
        self._disk.free()


def _behind_a_proxy(
    kind: Callable[[Proxy], Outage],
) -> Callable[[Databases], AbstractAsyncContextManager[Outage]]:
    @asynccontextmanager
    async def made(databases: Databases) -> AsyncGenerator[Outage]:
        async with Proxy(databases.postgres) as proxy:
            yield kind(proxy)

    return made


def _of_a_pair(
    kind: Callable[[Proxy, Cluster, Cluster], Outage],
) -> Callable[[Databases], AbstractAsyncContextManager[Outage]]:
    @asynccontextmanager
    async def made(_: Databases) -> AsyncGenerator[Outage]:
        pair = own_pair()
        primary, standby = await asyncio.to_thread(pair.__enter__)
        try:
            await asyncio.to_thread(_migrate, primary.url)
            async with Proxy(primary.url) as proxy:
                yield kind(proxy, primary, standby)
        finally:
            await asyncio.to_thread(pair.__exit__, None, None, None)

    return made


@asynccontextmanager
async def _on_a_small_disk(_: Databases) -> AsyncGenerator[Outage]:
    with small_disk() as disk:
        outage = _FullDisk(disk)
        await asyncio.to_thread(_migrate, outage.url)
        yield outage


def _migrate(url: str) -> None:
    """Create the tables; Alembic upgrades one database at a time in a process."""
    with _MIGRATING:
        asyncio.run(migrate.upgrade(url))


OUTAGES: Final[dict[str, Callable[[Databases], AbstractAsyncContextManager[Outage]]]] = {
    "refused": _behind_a_proxy(_Refused),
    "frozen": _behind_a_proxy(_Frozen),
    "read-only": _of_a_pair(_ReadOnly),
    "failed over": _of_a_pair(_FailedOver),
    "full disk": _on_a_small_disk,
}
