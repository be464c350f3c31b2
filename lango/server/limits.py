"""What an API key may use: requests in a minute, turns at once, money in a day.

Requests are counted by each server process for itself, turns and money in the database for all of
them. A turn is looked at before it is accepted: turns that come in the same moment may pass
together, and what a running turn will cost is not known before it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Protocol, cast, runtime_checkable

from fastapi import Depends, Request

from lango.core.keys import KeyLimits
from lango.errors import KeyLimitError
from lango.server.callers import Caller, NamedCaller, User
from lango.store.keys import ApiKey, KeyStore, today
from lango.store.model_calls import ModelCallStore

_MINUTE: Final = 60.0
_DAY: Final = timedelta(days=1)
_TURN_ENDS: Final = 2.0  # seconds: when a turn ends nobody knows, so ask again soon

Clock = Callable[[], float]


class Rates:
    """One bucket per key: full it holds a minute's requests, and fills evenly."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # what is left, and as of when

    def take(self, key: ApiKey) -> None:
        """Count one request; KeyLimitError if there have been too many."""
        allowed = key.limits.requests
        if allowed is None:
            return
        moment, per_second = self._clock(), allowed / _MINUTE
        left, since = self._buckets.get(key.id, (float(allowed), moment))
        left = min(left + (moment - since) * per_second, float(allowed))
        if left < 1:
            self._buckets[key.id] = (left, moment)
            wait = (1 - left) / per_second
            raise KeyLimitError(
                f"This key may make {allowed} requests a minute.",
                limit="requests",
                retry_after=wait,
            )
        self._buckets[key.id] = (left - 1, moment)


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


async def admitted(request: Request, known: User) -> NamedCaller:
    """The caller, if it may have another turn."""
    identity = cast("object", request.app.state.identity)
    if isinstance(identity, Admits):
        await identity.admit(request, known)
    return known


AdmittedUser = Annotated[NamedCaller, Depends(admitted)]
