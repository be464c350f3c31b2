"""The spans of the store's steps with turns."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final

from lango.store.db.database import Database
from lango.telemetry.tracing.current import tracer
from lango.telemetry.tracing.names import DATABASE

_IDLE: Final = nullcontext()


def store_step(name: str, database: Database) -> AbstractContextManager[None]:
    """The span of a step, within a traced request or attempt; nothing while traces are off."""
    current = tracer()
    return _IDLE if current is None else current.step(name, {DATABASE: system_of(database)})


def system_of(database: Database) -> str:
    """The conventions' name of the database system."""
    return "sqlite" if database.is_sqlite else "postgresql"
