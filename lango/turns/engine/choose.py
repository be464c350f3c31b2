"""The engine that a setting names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lango.core.extras import install, is_installed
from lango.errors import ConfigError
from lango.store.db.database import Database
from lango.store.turns.claim import DEAD_AFTER
from lango.turns.bus.choose import bus_of
from lango.turns.engine.database import LocalEngine

if TYPE_CHECKING:
    from lango.turns.engine.temporal import TemporalEngine

DATABASE: Final = "database"
_TEMPORAL: Final = frozenset({"temporal", "temporals"})


def engine_of(
    setting: str, bus: str, database: Database, *, dead_after: float = DEAD_AFTER
) -> LocalEngine | TemporalEngine:
    """The engine of a setting, `database` or `temporal://…`, with the bus of another."""
    scheme = urlsplit(setting).scheme
    if setting == DATABASE:
        return LocalEngine(database, bus=bus_of(bus, database), dead_after=dead_after)
    if scheme in _TEMPORAL:
        if not is_installed("temporal"):
            raise ConfigError(
                f"The engine needs a package that is not installed: {install('temporal')}"
            )
        from lango.turns.engine.temporal import TemporalEngine

        return TemporalEngine(database, setting, bus=bus_of(bus, database), dead_after=dead_after)
    raise ConfigError(
        f"`engine` has no such form: {scheme or setting!r}. Write `database` or "
        "`temporal://host:7233/namespace`."
    )
