"""Limits of a caller: requests per minute, concurrent turns, cost per day.

The database counts them for all processes together. Turns and cost are checked before a turn is
accepted, so turns submitted at the same moment may pass together; cost is checked again when the
turn starts. The cost of a running turn is unknown until it is spent. A repeated request gets the
turn that was accepted before, without a check.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Final, Protocol, cast, runtime_checkable
from weakref import WeakValueDictionary

from fastapi import Depends, Request

from lango.errors import KeyLimitError, TooManyAttemptsError
from lango.server.auth.callers import Caller, NamedCaller, User
from lango.server.auth.quotas import RETRY_AFTER_TURN
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


class Buckets:
    """Token buckets by name: each starts full and refills at a constant rate."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        # By bucket: its tokens, and their time.
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, most: int, per_second: float) -> float:
        """Take one token and return 0, or take none and return the seconds until there is one."""
        tokens, moment = self._now(name, most, per_second)
        self._keep(name, tokens - 1 if tokens >= 1 else tokens, moment)
        return 0.0 if tokens >= 1 else (1 - tokens) / per_second

    def wait(self, name: str, most: int, per_second: float) -> float:
        """The seconds until there is a token, or 0. Takes none."""
        tokens, moment = self._now(name, most, per_second)
        self._keep(name, tokens, moment)
        return 0.0 if tokens >= 1 else (1 - tokens) / per_second

    def _now(self, name: str, most: int, per_second: float) -> tuple[float, float]:
        moment = self._clock()
        tokens, since = self._tokens.pop(name, (float(most), moment))
        return min(tokens + (moment - since) * per_second, float(most)), moment

    def _keep(self, name: str, tokens: float, moment: float) -> None:
        self._tokens[name] = (tokens, moment)
        if len(self._tokens) > _MAX_BUCKETS:
            self._tokens.popitem(last=False)


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
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._buckets = Buckets(clock)
        self._at_a_time: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def look_up(self, address: str) -> AsyncGenerator[None]:
        """Allow one key lookup within the block; TooManyAttemptsError if too many were wrong."""
        slots = self._at_a_time.setdefault(address, asyncio.Semaphore(MAX_CONCURRENT_LOOKUPS))
        async with slots:
            wait = self._buckets.wait(address, MAX_ATTEMPTS, ATTEMPTS_A_SECOND)
            if wait:
                raise TooManyAttemptsError(retry_after=wait)
            yield

    def count_unknown(self, address: str) -> None:
        """Count an unknown key."""
        self._buckets.take(address, MAX_ATTEMPTS, ATTEMPTS_A_SECOND)


class TurnLimits:
    """Checks whether a caller may have another turn."""

    def __init__(self, allowances: Allowances) -> None:
        self._allowances = allowances

    async def check(self, caller: Caller) -> None:
        """KeyLimitError if it has reached its limit of open turns, or of today's cost."""
        most = caller.limits.turns
        if most is not None and await self._allowances.open_turns(caller.key_id) >= most:
            raise KeyLimitError(
                f"This caller may have {most} turns at once, and has them.",
                limit="turns",
                retry_after=RETRY_AFTER_TURN,
            )
        if caller.limits.cost is not None:
            await self._allowances.check_cost(caller.tenant, caller.key_id, caller.limits.cost)


@runtime_checkable
class Admits(Protocol):
    """An identity that also limits its callers' turns."""

    async def admit(self, request: Request, caller: Caller) -> None:
        """KeyLimitError if this caller may not have another turn now."""
        ...


class Admission:
    """Checks whether the caller of a request, and its tenant, may have another turn."""

    def __init__(self, request: Request, user: NamedCaller, served: EndpointServices) -> None:
        self.user = user
        self._request = request
        self._quotas = served.quotas
        self._taken = False

    async def take(self) -> None:
        """Count one more turn, once per request; KeyLimitError or QuotaError at a limit.

        Call it before a new turn is accepted, and not for a repeated request.
        """
        if self._taken:
            return
        identity = cast("object", self._request.app.state.identity)
        if isinstance(identity, Admits):
            await identity.admit(self._request, self.user)
        await self._quotas.take_turn(self.user.tenant)
        self._taken = True


async def admission(request: Request, user: User, served: Served) -> Admission:
    """The admission of a caller that wants a turn."""
    return Admission(request, user, served)


Admitting = Annotated[Admission, Depends(admission)]
