"""What an API key may use: requests in a minute, turns at once, money in a day.

Requests are counted by each server process for itself, turns and money in the database for all of
them. A turn is looked at before it is accepted: turns that come in the same moment may pass
together, and what a running turn will cost is not known before it has.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Protocol, cast, runtime_checkable
from weakref import WeakValueDictionary

from fastapi import Depends, Request

from lango.core.keys import KeyLimits
from lango.errors import KeyLimitError, TooManyAttemptsError
from lango.server.backend import Served
from lango.server.callers import Caller, NamedCaller, User
from lango.store.keys import ApiKey, KeyStore, today
from lango.store.model_calls import ModelCallStore

MOST_ATTEMPTS: Final = 50
"""Keys that are not known here, from one address at once."""
ATTEMPTS_A_SECOND: Final = 2.0
"""The same, from then on."""
LOOK_UPS_AT_A_TIME: Final = 8
"""Keys of one address that are looked up at a time."""
_MOST_BUCKETS: Final = 10_000
_MINUTE: Final = 60.0
_DAY: Final = timedelta(days=1)
_TURN_ENDS: Final = 2.0  # seconds: when a turn ends nobody knows, so ask again soon

Clock = Callable[[], float]


class Buckets:
    """Token buckets by name: full at first, each fills evenly, and what is taken empties it."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # and as of when

    def take(self, name: str, most: int, per_second: float) -> float:
        """Take one token; 0, or the seconds until there is one, and then none is taken."""
        left, moment = self._now(name, most, per_second)
        self._keep(name, left - 1 if left >= 1 else left, moment)
        return 0.0 if left >= 1 else (1 - left) / per_second

    def wait(self, name: str, most: int, per_second: float) -> float:
        """0, or the seconds until there is a token; none is taken."""
        left, moment = self._now(name, most, per_second)
        self._keep(name, left, moment)
        return 0.0 if left >= 1 else (1 - left) / per_second

    def _now(self, name: str, most: int, per_second: float) -> tuple[float, float]:
        moment = self._clock()
        left, since = self._left.pop(name, (float(most), moment))
        return min(left + (moment - since) * per_second, float(most)), moment

    def _keep(self, name: str, left: float, moment: float) -> None:
        self._left[name] = (left, moment)
        if len(self._left) > _MOST_BUCKETS:
            self._left.popitem(last=False)


class Rates:
    """Holds keys to the requests that they may make in a minute."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._buckets = Buckets(clock)

    def take(self, key: ApiKey) -> None:
        """Count one request; KeyLimitError if there have been too many."""
        allowed = key.limits.requests
        if allowed is None:
            return
        wait = self._buckets.take(key.id, allowed, allowed / _MINUTE)
        if wait:
            raise KeyLimitError(
                f"This key may make {allowed} requests a minute.",
                limit="requests",
                retry_after=wait,
            )


class Attempts:
    """Bounds how often an address may be wrong about a key: each try costs a look-up.

    Only so many of an address are looked up at a time, the others wait for them. So good keys that
    come together, as after a restart, are not taken for guesses, and guesses that come together
    get no further than others.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._buckets = Buckets(clock)
        self._at_a_time: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def look_up(self, address: str) -> AsyncGenerator[None]:
        """A look-up of a key, inside; TooManyAttemptsError if too many were wrong."""
        slots = self._at_a_time.setdefault(address, asyncio.Semaphore(LOOK_UPS_AT_A_TIME))
        async with slots:
            wait = self._buckets.wait(address, MOST_ATTEMPTS, ATTEMPTS_A_SECOND)
            if wait:
                raise TooManyAttemptsError(retry_after=wait)
            yield

    def was_wrong(self, address: str) -> None:
        """Count a key that is not known here."""
        self._buckets.take(address, MOST_ATTEMPTS, ATTEMPTS_A_SECOND)


class TurnLimits:
    """Whether a key may have another turn."""

    def __init__(self, keys: KeyStore, calls: ModelCallStore) -> None:
        self._keys = keys
        self._calls = calls

    async def check(self, tenant: str, key_id: str, limits: KeyLimits) -> None:
        """KeyLimitError if it has too many already, or has spent what it may today."""
        if limits.turns is not None and await self._keys.open_turns(key_id) >= limits.turns:
            raise KeyLimitError(
                f"This key may have {limits.turns} turns at once, and has them.",
                limit="turns",
                retry_after=_TURN_ENDS,
            )
        if limits.cost is not None:
            await self._check_cost(tenant, key_id, limits.cost)

    async def _check_cost(self, tenant: str, key_id: str, allowed: float) -> None:
        since = today()
        spent = await self._calls.cost_of_key(tenant, key_id, since)
        spent += await self._keys.deleted_cost(tenant, key_id, since)
        if spent >= allowed:
            tomorrow = since + _DAY
            raise KeyLimitError(
                f"This key may spend ${allowed:g} a day (UTC), and has.",
                limit="cost",
                retry_after=max((tomorrow - datetime.now(UTC)).total_seconds(), 1.0),
            )


@runtime_checkable
class Admits(Protocol):
    """An identity that also knows how many turns its callers may have."""

    async def admit(self, request: Request, caller: Caller) -> None:
        """KeyLimitError if this caller may not have another turn now."""
        ...


async def admitted(request: Request, known: User, served: Served) -> NamedCaller:
    """The caller, if it and its tenant may have another turn."""
    identity = cast("object", request.app.state.identity)
    if isinstance(identity, Admits):
        await identity.admit(request, known)
    await served.quotas.take_turn(known.tenant)
    return known


AdmittedUser = Annotated[NamedCaller, Depends(admitted)]
