"""What the attempts of this process tell, for those here who need not wait for the log."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from lango.core.turns import End, Event
from lango.store.entries import SessionKey
from lango.store.turn_log import LoggedEvent
from lango.store.turn_rows import Claim, Turn


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt begins: what it tells comes behind what the log held at the claim."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Over:
    """The attempt is over: the turn is closed like this, or it is another worker's now."""

    end: End | None


Heard = Begun | Event | Over | LoggedEvent | Exception
"""An attempt's words; and, from whoever reads the log beside them, the log's, or why it cannot."""
Feed = asyncio.Queue[Heard]


class Feeds:
    """Who listens to which turn of this process.

    A turn is known by its session and idempotency key: those can be chosen before it is handed in,
    so that nothing of it is missed.
    """

    def __init__(self) -> None:
        self._feeds: dict[tuple[SessionKey, str], list[Feed]] = {}

    @contextmanager
    def listen(self, session: SessionKey, key: str) -> Generator[Feed]:
        """What the attempts at a turn tell from now on."""
        feed = Feed()
        self._feeds.setdefault((session, key), []).append(feed)
        try:
            yield feed
        finally:
            self._feeds[session, key].remove(feed)
            if not self._feeds[session, key]:
                del self._feeds[session, key]

    def tell(self, turn: Turn, heard: Begun | Event | Over) -> None:
        """Tell those who listen to a turn."""
        for feed in self._feeds.get((turn.session, turn.idempotency_key), ()):
            feed.put_nowait(heard)

    def end(self, error: Exception) -> None:
        """Tell everybody that there will be nothing more to hear."""
        for feeds in self._feeds.values():
            for feed in feeds:
                feed.put_nowait(error)
