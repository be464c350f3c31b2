"""Limits of a caller: requests per minute, concurrent turns, cost per day.

The database counts them for all processes together. Turns and cost are checked before a turn is
accepted: turns again in the transaction that accepts it, cost when the turn starts. The cost of
a running turn is unknown until it is spent. A repeated request gets the turn that was accepted
before, without a check.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Final
from weakref import WeakValueDictionary

from fastapi import Depends, Request

from lango.errors import KeyLimitError, TooManyAttemptsError
from lango.server.auth.callers import Caller, NamedCaller, User, identity_of
from lango.server.backend import EndpointServices, Served
from lango.store.allowances import Allowances

MAX_ATTEMPTS: Final = 50
"""Burst of unknown keys that one address may send."""
ATTEMPTS_A_SECOND: Final = 2.0
"""Sustained rate of unknown keys per address, after that burst."""
MAX_CONCURRENT_LOOKUPS: Final = 8
"""Concurrent key lookups per address."""
_MAX_BUCKETS: Final = 10_000
_SHARES: Final = 30  # a process takes 1/30 of a minute's requests at a time
_SHARE_LASTS: Final = 10.0

Clock = Callable[[], float]


@dataclass(slots=True)
class _Share:
    """Requests of a caller that this process has taken from the database."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    requests: int = 0
    lapse_at: float = 0.0
    refused_until: float = 0.0


class Rates:
    """Enforces the callers' limits of requests per minute, over all processes.

    A process takes a few requests from the database at a time, and uses them within seconds.
    """

    def __init__(self, allowances: Allowances, clock: Clock = time.monotonic) -> None:
        self._allowances = allowances
        self._clock = clock
        self._shares: OrderedDict[str, _Share] = OrderedDict()

    async def take(self, caller: Caller) -> None:
        """Count one request; KeyLimitError if the caller has reached its limit."""
        allowed = caller.limits.requests
        if allowed is None:
            return
        share = self._shares.setdefault(caller.key_id, _Share())
        self._shares.move_to_end(caller.key_id)
        if len(self._shares) > _MAX_BUCKETS:
            self._shares.popitem(last=False)
        async with share.lock:
            wait = await self._use(share, caller.key_id, allowed)
        if wait > 0:
            raise KeyLimitError(
                f"This caller may make {allowed} requests a minute.",
                limit="requests",
                retry_after=wait,
            )

    async def _use(self, share: _Share, caller: str, allowed: int) -> float:
        """Use one request of a share and return 0, or the seconds until there is one."""
        moment = self._clock()
        if moment < share.refused_until:
            return share.refused_until - moment
        if not share.requests or moment > share.lapse_at:
            requests = max(allowed // _SHARES, 1)
            granted = await self._allowances.take_requests(caller, allowed, requests)
            share.requests, share.lapse_at = granted.requests, moment + _SHARE_LASTS
            share.refused_until = moment + granted.wait
        if not share.requests:
            return share.refused_until - moment
        share.requests -= 1
        return 0.0


class Attempts:
    """Limits how many unknown keys an address may send: each costs a lookup.

    An address has MAX_CONCURRENT_LOOKUPS concurrent lookups; others wait. So valid keys that arrive
    together, as after a restart, do not count as guesses, and concurrent guesses gain nothing.
    What is no key costs no lookup, and a token a check of its signature: such requests are refused
    at once, and are not counted. Counting them would lock out the users of a shared address.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        # The keys that each address may still send, and when that was counted: a token bucket.
        self._allowed: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._at_a_time: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def look_up(self, address: str) -> AsyncGenerator[None]:
        """Allow one key lookup within the block; TooManyAttemptsError if too many were wrong."""
        slots = self._at_a_time.setdefault(address, asyncio.Semaphore(MAX_CONCURRENT_LOOKUPS))
        async with slots:
            allowed = self._refilled(address)
            if allowed < 1:
                raise TooManyAttemptsError(retry_after=(1 - allowed) / ATTEMPTS_A_SECOND)
            yield

    def count_unknown(self, address: str) -> None:
        """Count an unknown key."""
        allowed = self._refilled(address)
        self._allowed[address] = (allowed - 1 if allowed >= 1 else allowed, self._clock())
        self._allowed.move_to_end(address)
        if len(self._allowed) > _MAX_BUCKETS:
            self._allowed.popitem(last=False)

    def _refilled(self, address: str) -> float:
        allowed, since = self._allowed.get(address, (MAX_ATTEMPTS, self._clock()))
        return min(allowed + (self._clock() - since) * ATTEMPTS_A_SECOND, MAX_ATTEMPTS)


async def check_turn_limits(allowances: Allowances, caller: Caller) -> None:
    """KeyLimitError if a caller has reached its limit of open turns, or of today's cost."""
    if caller.limits.turns is not None:
        await allowances.check_turns(caller.key_id, caller.limits.turns)
    if caller.limits.cost is not None:
        await allowances.check_cost(caller.tenant, caller.key_id, caller.limits.cost)


class Admission:
    """Checks whether the caller of a request, and its tenant, may have another turn.

    `data`: the bytes of files in the turn's message.
    """

    def __init__(
        self, request: Request, user: NamedCaller, served: EndpointServices, *, data: int = 0
    ) -> None:
        self.user = user
        self._data = data
        self._request = request
        self._served = served
        self._taken = False

    async def take(self) -> None:
        """Count one more turn, once per request; KeyLimitError or QuotaError at a limit.

        Call it before a new turn is accepted, and not for a repeated request.
        """
        if self._taken:
            return
        await admit_turn(self._request, self.user, self._served)
        if self._data:
            await self._served.quotas.take_bytes(self.user.tenant, self._data)
        self._taken = True


async def admit_turn(request: Request, caller: Caller, served: EndpointServices) -> None:
    """Count one more turn of a caller, which may be an admin that acts for no user."""
    await identity_of(request).admit(caller)
    await served.quotas.take_turn(caller.tenant)


async def admission(request: Request, user: User, served: Served) -> Admission:
    """The admission of a caller that wants a turn."""
    return Admission(request, user, served)


Admitting = Annotated[Admission, Depends(admission)]
