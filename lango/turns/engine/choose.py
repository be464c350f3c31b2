"""The engine that a setting names."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from lango.errors import ConfigError
from lango.store.db.database import Database
from lango.store.turns.claim import DEAD_AFTER
from lango.turns.bus.choose import bus_of
from lango.turns.engine.database import LocalEngine

DATABASE: Final = "database"


def engine_of(
    setting: str, bus: str, database: Database, *, dead_after: float = DEAD_AFTER
) -> LocalEngine:
    """The engine of a setting, `database`, with the bus of another."""
    if setting == DATABASE:
        return LocalEngine(database, bus=bus_of(bus, database), dead_after=dead_after)
    raise ConfigError(f"`engine` has no such form: {urlsplit(setting).scheme or setting!r}.")
