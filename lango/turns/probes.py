"""Whether the bus and the engine of the settings answer, for `lango doctor`."""

from __future__ import annotations

from urllib.parse import urlsplit

from lango.store.db.database import Database
from lango.turns.bus.choose import bus_of
from lango.turns.bus.connection import BusConnection
from lango.turns.engine.choose import engine_of
from lango.turns.engine.database import LocalEngine


async def probe_bus(setting: str, database: Database) -> str | None:
    """Connect to the bus once and say what was found; None for the database; raises if away."""
    bus = bus_of(setting, database)
    if not isinstance(bus, BusConnection):
        return None
    await bus.probe()
    parts = urlsplit(setting)
    return f"{parts.scheme} at {parts.hostname}:{parts.port or 'its usual port'} answers"


async def probe_engine(setting: str, database: Database) -> str | None:
    """Connect to the engine once and say what was found; None for the database; raises if away."""
    engine = engine_of(setting, "database", database)
    return None if isinstance(engine, LocalEngine) else await engine.connection.probe()
