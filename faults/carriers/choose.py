"""The engine and the bus that a row runs on, with servers of the run that are killed meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from faults.carriers.bus_servers import COMMANDS, BusServer, bus_server
from lango.store.db.database import Database
from lango.store.turns.rows import Head
from lango.turns.engine.choose import DATABASE, engine_of
from lango.turns.engine.database import LocalEngine

if TYPE_CHECKING:
    from lango.turns.engine.temporal import TemporalEngine

ON_CARRIERS: Final = (
    *("G2", "G6", "G7", "G8", "G9", "G10", "ORDER", "HANG", "READ", "CHAOS", "DEPLOY", "G17"),
    *("BLACKBOX", "DISPATCH"),
)
"""The rows that start workers. The others call the queue or the store directly."""
BUSES: Final = (DATABASE, *COMMANDS)
ENGINES: Final = (DATABASE, "temporal")
_BUS: Final = "LANGO_BUS"  # as `lango serve` and `lango worker` read them
_ENGINE: Final = "LANGO_ENGINE"
_LOST: Final = 0.05
"""The share of dispatches that is dropped: the engine must find these turns by itself."""
_UP: Final = 6.0
_DOWN: Final = 1.5


def chosen_engine_name() -> str:
    """The engine of this run, by its name in `ENGINES`."""
    return os.environ.get(_ENGINE, DATABASE).partition(":")[0]


def chosen_engine(database: Database, dead_after: float) -> LocalEngine | TemporalEngine:
    """The engine and the bus of this run, as the environment names them.

    An engine with a server of its own loses some dispatches.
    """
    engine, bus = (os.environ.get(name, DATABASE) for name in (_ENGINE, _BUS))
    made = engine_of(engine, bus, database, dead_after=dead_after)
    if engine != DATABASE:
        dispatch = made.dispatch

        def dispatch_most(heads: Sequence[Head] = ()) -> None:
            if not heads or random.random() >= _LOST:
                dispatch(heads)

        made.dispatch = dispatch_most
    return made


@contextmanager
def on_database_alone() -> Generator[None]:
    """Use neither the engine nor the bus of this run within the context."""
    kept = {name: os.environ.pop(name) for name in (_ENGINE, _BUS) if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


class Striker:
    """Kills a server and restarts it, again and again, in a thread of its own."""

    def __init__(self, server: BusServer) -> None:
        self.kills = 0
        self.server = server
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._strike, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, with the server in whatever state it is."""
        self._is_over.set()
        self._thread.join()

    def _strike(self) -> None:
        while not self._is_over.wait(_UP):
            self.server.kill()
            self.kills += 1
            self._is_over.wait(_DOWN)
            asyncio.run(self.server.start())


@contextmanager
def carriers(engine: str, bus: str) -> Generator[Sequence[Striker]]:
    """Run on an engine and a bus within the context, whose servers are killed and restarted."""
    with ExitStack() as ending:
        servers: dict[str, BusServer] = {}
        if bus != DATABASE:
            servers[_BUS] = ending.enter_context(bus_server(bus))
        if engine != DATABASE:
            from faults.carriers.temporal_server import (
                temporal_server,  # its client takes long to import
            )

            servers[_ENGINE] = ending.enter_context(temporal_server())
        strikers: list[Striker] = []
        for name, server in servers.items():
            asyncio.run(server.start())
            os.environ[name] = server.url
            ending.callback(os.environ.pop, name)
            strikers.append(Striker(server))
            ending.callback(strikers[-1].stop)
            strikers[-1].start()
        yield strikers
