"""Temporal's side of submitting turns: the connection, and activities that are started there."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from temporalio.client import ActivityExecutionStatus, Client
from temporalio.common import (
    ActivityIDConflictPolicy,
    ActivityIDReusePolicy,
    Priority,
    RetryPolicy,
)
from temporalio.exceptions import ActivityAlreadyStartedError
from temporalio.service import GrpcCompression, RPCError, RPCStatusCode

from lango.core.backoff import delays
from lango.core.failpoints import failpoint
from lango.core.turns.states import MAX_TIME_LIMIT
from lango.errors import ConfigError
from lango.store.turns.rows import Head
from lango.turns.engine.head_messages import encode_head

logger = logging.getLogger(__name__)

ACTIVITY: Final = "lango.turn"
TLS: Final = "temporals"
_ANSWER_WITHIN: Final = timedelta(seconds=5)
_LAST_WITHIN: Final = 2.0
"""Seconds that a process that ends waits for its last dispatches."""
_HEARTBEAT_TIMEOUT: Final = timedelta(seconds=5)
_RETRY: Final = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=1.0)
_AT_ONCE: Final = 32
_MAX_UNSENT: Final = 1_000
"""Dispatches kept while Temporal does not take them. Sweeps find the turns of the others."""
_CERTAIN_FOR: Final = 15.0
"""Seconds after which a sweep dispatches a turn again that Temporal has accepted."""
_DROPPED_WITHIN: Final = 0.1
"""Seconds for the SDK's threads to end: one that runs while Python exits aborts the process.

temporalio/sdk-python issue 300.
"""
_NO_TENANT: Final = "default"
_MAX_KEY_BYTES: Final = 64


class TemporalAddress(NamedTuple):
    """Where Temporal is."""

    target: str
    namespace: str
    api_key: str | None
    tls: bool


def address_of(url: str) -> TemporalAddress:
    """The address in `temporal://host:7233/namespace`; `temporals://:KEY@…` is for TLS."""
    parts = urlsplit(url)
    try:
        port = parts.port or 7233
    except ValueError:
        port = 0
    namespace = unquote(parts.path.strip("/")) or "default"
    if not parts.hostname or not port or "/" in namespace:
        raise ConfigError("`engine` has no such form. Write `temporal://host:7233/namespace`.")
    key = unquote(parts.password) if parts.password else None
    return TemporalAddress(f"{parts.hostname}:{port}", namespace, key, parts.scheme == TLS)


class TemporalConnection:
    """A connection that is made in the background; gRPC restores it after faults."""

    def __init__(self, address: TemporalAddress) -> None:
        self.address = address
        self._connecting: asyncio.Task[Client] | None = None

    def open(self) -> None:
        """Start to connect."""
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect_repeatedly())

    async def close(self) -> None:
        """Stop connecting, and drop the client."""
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            await asyncio.sleep(_DROPPED_WITHIN)

    async def client(self) -> Client:
        """The client, once Temporal has answered."""
        if self._connecting is None:
            raise ConnectionError("The engine is closed.")
        return await asyncio.shield(self._connecting)

    async def connect(self) -> Client:
        """Connect once; raises if Temporal does not answer, or does not know the namespace."""
        address = self.address
        client = await Client.connect(
            address.target,
            namespace=address.namespace,
            api_key=address.api_key,
            tls=address.tls,
            connect_timeout=_ANSWER_WITHIN,
            grpc_compression=GrpcCompression.NONE,  # messages are small, and turns many
        )
        await _open_activities(client)
        return client

    async def probe(self) -> str:
        """Connect once, and say what was found."""
        count = await _open_activities(await self.connect())
        address = f"Temporal at {self.address.target}, namespace {self.address.namespace}"
        return f"{address}, answers; {count} turns are open there"

    async def _connect_repeatedly(self) -> Client:
        was_away = False
        for wait in delays():
            try:
                client = await self.connect()
            except Exception as error:  # noqa: BLE001 - retry after any fault
                if not was_away:
                    logger.warning(_AWAY, self.address.target, type(error).__name__, error)
                was_away = True
            else:
                logger.info("Connected to Temporal at %s.", self.address.target)
                return client
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")  # pragma: no cover


_AWAY: Final = "Temporal at %s does not answer: turns wait until it does (%s: %s)"
Cancelled = Callable[[Head], Awaitable[None]]


class ActivityStarter:
    """Starts and cancels activities in the background; a failure is logged and forgotten.

    Calls `cancelled` for a turn whose activity was cancelled in Temporal before it began.
    """

    def __init__(
        self, connection: TemporalConnection, namespace: str, cancelled: Cancelled
    ) -> None:
        self._connection = connection
        self._namespace = namespace
        self._cancelled = cancelled
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._sending: dict[str, asyncio.Task[None]] = {}  # by turn
        self._accepted: dict[str, float] = {}  # turns, the oldest first
        self._is_failing = False

    def queue_of(self, app: str) -> str:
        """The task queue of an app."""
        return f"{self._namespace}/{app}"

    def is_known(self, turn_id: str) -> bool:
        """Whether Temporal has accepted the turn lately from this process, or is about to."""
        accepted = self._accepted.get(turn_id, float("-inf"))
        return turn_id in self._sending or time.monotonic() - accepted <= _CERTAIN_FOR

    def start(self, head: Head) -> None:
        """Start the activity of a turn soon, unless it is open already."""
        if head.turn not in self._sending:
            self._send_soon(head.turn, self._start(head))

    def cancel(self, turn_id: str) -> None:
        """Cancel the activity of a turn soon."""
        self._send_soon(turn_id, self._cancel(turn_id, after=self._sending.get(turn_id)))

    async def close(self) -> None:
        """Finish what is being sent, for a while."""
        if self._sending:
            await asyncio.wait(self._sending.values(), timeout=_LAST_WITHIN)
        unfinished = list(self._sending.values())
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

    def _send_soon(self, turn_id: str, call: Coroutine[Any, Any, None]) -> None:
        if len(self._sending) >= _MAX_UNSENT:
            call.close()
            return
        task = asyncio.create_task(self._send(call))
        self._sending[turn_id] = task
        task.add_done_callback(lambda _: self._sent(turn_id, task))

    def _sent(self, turn_id: str, task: asyncio.Task[None]) -> None:
        if self._sending.get(turn_id) is task:
            del self._sending[turn_id]

    async def _send(self, call: Coroutine[Any, Any, None]) -> None:
        try:
            async with self._at_once:
                await call
            if self._is_failing:
                logger.info("Temporal accepts turns again.")
            self._is_failing = False
        except Exception as error:  # noqa: BLE001 - a sweep finds the turn
            if not self._is_failing:
                logger.warning("Temporal does not accept turns; they wait: %r", error)
            self._is_failing = True
        finally:
            call.close()

    async def _start(self, head: Head) -> None:
        client = await self._connection.client()
        try:
            await self._start_once(client, head, ActivityIDReusePolicy.REJECT_DUPLICATE)
        except ActivityAlreadyStartedError:  # and ended: as cancelled, or without running the turn
            if await _is_cancelled(client, head.turn):
                await self._cancelled(head)
                if not head.lost:
                    return
            await self._start_once(client, head, ActivityIDReusePolicy.ALLOW_DUPLICATE)
        self._accept(head.turn)

    def _accept(self, turn_id: str) -> None:
        now = time.monotonic()
        self._accepted.pop(turn_id, None)
        self._accepted[turn_id] = now
        while now - self._accepted[oldest := next(iter(self._accepted))] > _CERTAIN_FOR:
            del self._accepted[oldest]

    async def _start_once(self, client: Client, head: Head, reuse: ActivityIDReusePolicy) -> None:
        delay = None if head.run_at is None else timedelta(seconds=head.run_at - time.time())
        await client.start_activity(
            ACTIVITY,
            encode_head(head),
            id=head.turn,
            task_queue=self.queue_of(head.app),
            # The turn's time limit is kept by its worker, over all attempts.
            start_to_close_timeout=timedelta(seconds=2 * MAX_TIME_LIMIT),
            heartbeat_timeout=_HEARTBEAT_TIMEOUT,
            id_reuse_policy=reuse,
            id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING,
            retry_policy=_RETRY,
            priority=Priority(fairness_key=_fairness_key(head.tenant)),
            start_delay=delay if delay and delay > timedelta(0) else None,
            rpc_timeout=_ANSWER_WITHIN,
        )
        failpoint("engine.dispatched")

    async def _cancel(self, turn_id: str, after: asyncio.Task[None] | None) -> None:
        if after is not None:
            await asyncio.wait([after])
        client = await self._connection.client()
        try:
            await client.get_activity_handle(turn_id).cancel(
                reason="The turn was cancelled in lango.", rpc_timeout=_ANSWER_WITHIN
            )
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise


async def _open_activities(client: Client) -> int:
    query = f"ActivityType = '{ACTIVITY}' AND ExecutionStatus = 'Running'"
    return (await client.count_activities(query, rpc_timeout=_ANSWER_WITHIN)).count


async def _is_cancelled(client: Client, turn_id: str) -> bool:
    described = await client.get_activity_handle(turn_id).describe(rpc_timeout=_ANSWER_WITHIN)
    return described.status == ActivityExecutionStatus.CANCELED


def _fairness_key(tenant: str) -> str:
    """The key by which Temporal shares a task queue fairly; it has a limited length."""
    key = tenant.encode() or _NO_TENANT.encode()
    return key.decode() if len(key) <= _MAX_KEY_BYTES else hashlib.sha256(key).hexdigest()
