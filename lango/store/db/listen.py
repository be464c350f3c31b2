"""Notifications between processes: PostgreSQL's LISTEN and NOTIFY."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn

from lango.core.backoff import delays
from lango.core.ids import new_id
from lango.errors import StoreError
from lango.store.db.database import Database
from lango.store.db.engines import CONNECT_TIMEOUT, close_engine, create_engine
from lango.store.db.liveness import answers

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 7_900
"""The longest notification; PostgreSQL's own limit is 8,000 bytes."""
_CHANNEL: Final = "lango"
_SEND: Final = "select pg_notify($1, $2)"
_PROBE_EVERY: Final = 10.0  # seconds between probes of a silent server
_ARRIVAL_TIMEOUT: Final = 2.0
_NO_SESSION: Final = (
    "A pooler in transaction mode delivers no notifications: set `store.direct_url` to the URL of "
    "the database itself."
)


class Notices:
    """The notifications of one database, or of one schema in it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        schema = database.schema
        self._channel = f"{_CHANNEL}:{schema}"[:63] if schema else _CHANNEL

    async def send(self, text: str) -> None:
        """Notify all processes that listen now, including this one."""
        await self.database.fetch(_SEND, self._channel, text)

    async def listen(
        self, on_notification: Callable[[str], None], on_connect: Callable[[], None]
    ) -> NoReturn:
        """Listen until cancelled, on a connection of its own; reconnect after each fault.

        Calls `on_connect` whenever it has connected: notifications sent before are lost.
        """
        if not self.database.can_listen:
            raise StoreError(_NO_SESSION)
        while True:
            for wait in delays():
                try:
                    await self._listen_once(on_notification, on_connect)
                    break  # it was connected: restart with short waits
                except Exception as error:  # noqa: BLE001 - retry after any fault
                    logger.info(
                        "Cannot listen for notifications; retrying: %s", type(error).__name__
                    )
                await asyncio.sleep(wait)

    async def arrive(self) -> bool:
        """Whether a notification that this process sends now comes back to it."""
        if not self.database.can_listen:
            return False
        text, connected, arrived = new_id("try"), asyncio.Event(), asyncio.Event()

        def on_notification(received: str) -> None:
            if received == text:
                arrived.set()

        listening = asyncio.create_task(self.listen(on_notification, connected.set))
        try:
            await _set_within(connected, CONNECT_TIMEOUT)
            await self.send(text)
            await _set_within(arrived, _ARRIVAL_TIMEOUT)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        return arrived.is_set()

    async def _listen_once(
        self, on_notification: Callable[[str], None], on_connect: Callable[[], None]
    ) -> None:
        lost = asyncio.Event()
        async with self._connection() as raw:
            raw.add_termination_listener(_without_arguments(lost.set))
            await raw.add_listener(self._channel, _pass_text_to(on_notification))
            on_connect()
            while not lost.is_set() and await answers(raw):
                await _set_within(lost, _PROBE_EVERY)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Any]:
        """asyncpg's connection, which publishes no types."""
        url = self.database.session_url or self.database.url
        engine = create_engine(url, schema=self.database.schema, pool_size=1)
        try:
            connection = await engine.connect()
            raw: Any = (await connection.get_raw_connection()).driver_connection
            try:
                yield raw
            finally:
                raw.terminate()
                await asyncio.shield(connection.invalidate())
                await connection.close()
        finally:
            await close_engine(engine)


def _without_arguments(call: Callable[[], None]) -> Callable[..., None]:
    def listener(*_: Any) -> None:
        call()

    return listener


def _pass_text_to(on_notification: Callable[[str], None]) -> Callable[..., None]:
    def listener(_connection: Any, _pid: int, _channel: str, text: str) -> None:
        on_notification(text)

    return listener


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
