"""The engine and the bus that a row runs on, with servers of the run's own that die meanwhile."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Final

from faults.bus_servers import COMMANDS, BusServer, bus_server
from lango.store.db.database import Database
from lango.turns.engine.choose import DATABASE, engine_of
from lango.turns.engine.database import LocalEngine

ON_CARRIERS: Final = (
    *("G2", "G6", "G7", "G8", "G9", "G10", "ORDER", "HANG", "READ", "CHAOS", "DEPLOY", "G17"),
    "BLACKBOX",
)
"""The rows that start workers. The others drive the queue, or the store, by hand."""
BUSES: Final = (DATABASE, *COMMANDS)
_BUS: Final = "LANGO_BUS"  # as `lango serve` and `lango worker` read it
_UP: Final = 6.0
_DOWN: Final = 1.5


def chosen_engine(database: Database, dead_after: float) -> LocalEngine:
    """The engine and the bus of this run, as the environment names them."""
    bus = os.environ.get(_BUS, DATABASE)
    return engine_of(DATABASE, bus, database, dead_after=dead_after)


class Striker:
    """Kills a server and restarts it, again and again, in a thread of its own."""

    def __init__(self, server: BusServer) -> None:
        self.kills = 0
        self._server = server
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
            self._server.kill()
            self.kills += 1
            self._is_over.wait(_DOWN)
            asyncio.run(self._server.start())


@contextmanager
def carriers(bus: str) -> Generator[Striker | None]:
    """Run on a bus within the context; its server is killed and restarted meanwhile."""
    with ExitStack() as ending:
        if bus == DATABASE:
            yield None
            return
        server = ending.enter_context(bus_server(bus))
        asyncio.run(server.start())
        os.environ[_BUS] = server.url
        ending.callback(os.environ.pop, _BUS)
        striker = Striker(server)
        striker.start()
        ending.callback(striker.stop)
        yield striker
