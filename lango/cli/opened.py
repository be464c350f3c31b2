"""The store of the settings, opened for one command and closed after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lango.cli.options import StoreOptions, store_flags

if TYPE_CHECKING:
    from lango.config.settings import Settings
    from lango.store.sessions.store import SqlSessionStore
    from lango.turns.service import Turns

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store, the tenant of the command, and its settings."""

    store: SqlSessionStore
    tenant: str
    settings: Settings
    store_options: StoreOptions = (None, None, None)  # of the command line


def with_store(
    store_options: StoreOptions,
    tenant: str | None,
    work: Callable[[OpenStore], Awaitable[T]],
    *,
    may_create: bool = False,
) -> T:
    """Run `work` with the store; database errors become readable messages."""
    import asyncio

    from lango.config.load import load
    from lango.store.db.connection_errors import WRONG_FOLDER, in_words, require_file

    url, schema, config = store_options
    settings = load(config, store_flags(url, schema)).settings
    store = settings.store
    database_url, owner = store.full_url, store.tenant if tenant is None else tenant

    async def run() -> T:
        from lango.store.sessions.store import SqlSessionStore

        keys = [key.get_secret_value() for key in settings.credentials.keys]
        async with SqlSessionStore(
            database_url,
            schema=store.db_schema,
            credential_keys=keys,
            objects=settings.files.objects,
        ) as opened:
            return await work(OpenStore(opened, owner, settings, store_options))

    with in_words(database_url):
        require_file(database_url, may_create=may_create, advice=WRONG_FOLDER)
        return asyncio.run(run())


async def with_turns(opened: OpenStore, work: Callable[[Turns], Awaitable[T]]) -> T:
    """Run `work` with the turns of the tenant; workers are notified before this returns."""
    from lango.turns.engine.choose import engine_of
    from lango.turns.service import Turns

    bus = opened.settings.bus.get_secret_value()
    setting = opened.settings.engine.get_secret_value()
    async with engine_of(setting, bus, opened.store.database) as engine:
        return await work(Turns(opened.store, engine, tenant=opened.tenant))
