"""The bus that a setting names."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from lango.core.extras import install, is_installed
from lango.errors import ConfigError
from lango.store.db.database import Database
from lango.turns.bus.database import DatabaseBus
from lango.turns.bus.protocol import Bus

DATABASE: Final = "database"
_NATS: Final = frozenset({"nats", "tls"})
_REDIS: Final = frozenset({"redis", "rediss"})


def bus_of(setting: str, database: Database) -> Bus:
    """The bus of a setting: `database`, `nats://…` or `redis://…`."""
    scheme = urlsplit(setting).scheme
    if setting == DATABASE:
        return DatabaseBus(database)
    if scheme in _NATS:
        _require("nats")
        from lango.turns.bus.nats import NatsBus

        return NatsBus(setting, namespace_of(database))
    if scheme in _REDIS:
        _require("redis")
        from lango.turns.bus.redis import RedisBus

        return RedisBus(setting, namespace_of(database))
    raise ConfigError(
        f"`bus` has no such form: {scheme or setting!r}. Write `database`, `nats://host:4222` or "
        "`redis://host:6379`."
    )


def _require(extra: str) -> None:
    if not is_installed(extra):
        raise ConfigError(f"The bus needs a package that is not installed: {install(extra)}")


def namespace_of(database: Database) -> str:
    """Keeps apart the databases that share a server; a clash only wakes processes needlessly."""
    name = f"{database.url.database or ''}.{database.schema or 'public'}"
    return "lango." + re.sub(r"[^A-Za-z0-9_.-]", "_", name).strip(".")
