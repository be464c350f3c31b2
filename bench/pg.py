"""asyncpg behind types of our own, and a database that lives as long as the run."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from urllib.parse import urlsplit, urlunsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from tests.support.databases import direct

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

DEFAULT_URL: Final = "postgresql://postgres@127.0.0.1:5432/test"
POOL_SIZE: Final = 16


class Connection(Protocol):
    """The part of an asyncpg connection the benchmarks use."""

    async def execute(self, query: str, *args: object) -> str: ...
    async def fetch(self, query: str, *args: object) -> Sequence[Mapping[str, Any]]: ...
    async def fetchval(self, query: str, *args: object) -> Any: ...
    async def close(self) -> None: ...


class Pool(Protocol):
    """The part of an asyncpg pool the benchmarks use."""

    def acquire(self) -> AbstractAsyncContextManager[Connection]: ...
    async def close(self) -> None: ...


async def connect(url: str, schema: str = "public") -> Connection:
    """One connection, past any pooler, its statements resolved in this schema."""
    settings = {"search_path": schema}
    made = await cast("Any", asyncpg).connect(direct(url), server_settings=settings)
    return cast("Connection", made)


async def _keep_as_is(_: object) -> None:
    """No reset query on release: it would be a second round trip of every statement."""


async def open_pool(url: str, schema: str) -> Pool:
    """A pool with every connection open, so that no round pays for connecting."""
    pool = await cast("Any", asyncpg).create_pool(
        url,
        min_size=POOL_SIZE,
        max_size=POOL_SIZE,
        reset=_keep_as_is,
        server_settings={"search_path": schema},
    )
    return cast("Pool", pool)


def server_url() -> str:
    """The server to measure on."""
    return os.environ.get("LANGO_TEST_POSTGRES_URL") or DEFAULT_URL


def with_port(url: str, port: int) -> str:
    """The same database reached through a local port, such as the counting proxy's."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}" if user else ""))


@asynccontextmanager
async def own_database(suffix: str = "") -> AsyncGenerator[str]:
    """The URL of a new database that is dropped at the end."""
    name = f"lango_bench_{os.getpid()}{suffix}"
    admin = await connect(server_url())
    try:
        await admin.execute(f'create database "{name}"')
        try:
            yield urlunsplit(urlsplit(server_url())._replace(path=f"/{name}"))
        finally:
            await admin.execute(f'drop database "{name}" with (force)')
    finally:
        await admin.close()
