"""Fault handling for all providers: waits, retries, and fallback to another model.

It stops once the first event has reached the consumer, as a sent event cannot be taken back.
Models differ in their context window, so a draft makes a new request for each model.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from lango.core.backoff import delays
from lango.core.context.model_calls import CallOutcome, ModelAttempt
from lango.core.messages.streams import Done, StreamEvent, StreamEventError, TextDelta, Usage
from lango.errors import (
    BadRequestError,
    BadStreamError,
    ContextTooLongError,
    MissingExtraError,
    ModelError,
    ModelTimeoutError,
)
from lango.providers.base import Closing, ModelRequest, Provider, Warming
from lango.providers.policy.loop_throttle import LoopThrottle
from lango.providers.policy.per_loop import PerLoop
from lango.providers.policy.timeouts import Timeouts, Watch

logger = logging.getLogger(__name__)

_CALLER_ERRORS: Final = (BadRequestError, MissingExtraError)
"""Errors of the caller: a fallback to another model does not help."""

Slots = dict[tuple[str, str, int], asyncio.Semaphore]
_SLOTS: Final[PerLoop[Slots]] = PerLoop(dict)
_EVENT_THROTTLE: Final[PerLoop[LoopThrottle]] = PerLoop(LoopThrottle)
"""Throttles the events of all models: many at the same time would block the event loop."""

OnAttempt = Callable[[ModelAttempt], None]
OnStart = Callable[[ModelAttempt], Awaitable[None]]
"""Called before a request is sent; if it raises, the call ends and the request is not sent."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits and retries of model calls. The defaults are meant for production."""

    tries: int = 4  # attempts with one model, including the first
    first_wait: float = 0.5  # seconds before the second attempt; each further wait doubles
    longest_wait: float = 30.0  # a longer Retry-After means: no retry with this model
    max_concurrent_requests: int = 125  # to one model, per event loop: a worker's turns
    timeouts: Timeouts = field(default_factory=Timeouts)


@dataclass(frozen=True, slots=True)
class Fallback:
    """A model to use when the previous one fails, and its context window, if known."""

    provider: Provider
    model: str
    window: int | None = None


class Draft(Protocol):
    """Makes the request for each model."""

    def request(self, fallback: Fallback | None) -> ModelRequest:
        """The request for a model (None: the first); ContextTooLongError if it cannot fit."""
        ...

    def shorter(self) -> ModelRequest | None:
        """The last request shortened, once; None if nothing more can be left out."""
        ...


@dataclass(frozen=True, slots=True)
class _SameRequest:
    """A draft that sends the same request to every model."""

    same_request: ModelRequest

    def request(self, fallback: Fallback | None) -> ModelRequest:
        return (
            self.same_request
            if fallback is None
            else replace(self.same_request, model=fallback.model)
        )

    def shorter(self) -> ModelRequest | None:
        return None


@dataclass(slots=True)
class _Attempt:
    """One attempt in progress."""

    provider: Provider
    request: ModelRequest
    started: float = field(default_factory=time.time)
    first_byte: float | None = None
    outcome: CallOutcome = "cancelled"
    error: Exception | None = None
    request_id: str = ""
    usage: Usage | None = None
    text: list[str] = field(default_factory=list[str])
    reported: bool = False

    def stream(self) -> AsyncIterator[StreamEvent]:
        """The answer; its usage so far is recorded even if it breaks off."""
        return self.provider.stream(replace(self.request, on_usage=self._note_usage))

    def _note_usage(self, usage: Usage) -> None:
        self.usage = usage

    def record_event(self, event: StreamEvent) -> None:
        """Update the attempt from an event."""
        if isinstance(event, TextDelta):
            self.text.append(event.text)
        elif isinstance(event, Done):
            self.outcome, self.usage = "completed", event.usage
            self.request_id = event.request_id
        elif isinstance(event, StreamEventError):
            self.fail(event.error)
            return
        if self.first_byte is None:
            self.first_byte = time.time()

    def fail(self, error: Exception) -> None:
        """Record the failure: a timeout, a stream without an end, or the provider's error."""
        if isinstance(error, TimeoutError):
            error = self._with_context(ModelTimeoutError(), error)
        elif isinstance(error, StopAsyncIteration):
            error = self._with_context(BadStreamError(), error)
        self.outcome, self.error = "failed", error
        self.request_id = getattr(error, "request_id", "")

    def _with_context(self, error: ModelError, cause: Exception) -> ModelError:
        error.__cause__ = cause
        error.provider, error.model = self.provider.name, self.request.model
        error.partial_text = "".join(self.text)
        return error

    def report(self, on_attempt: OnAttempt | None) -> None:
        """Report the outcome, once."""
        if on_attempt is not None and not self.reported:
            self.reported = True
            on_attempt(self.record())

    def record(self, outcome: CallOutcome | None = None) -> ModelAttempt:
        """The record of the attempt."""
        return ModelAttempt(
            provider=self.provider.name,
            model=self.request.model,
            started=self.started,
            ended=time.time(),
            first_byte=self.first_byte,
            outcome=outcome or self.outcome,
            error=type(self.error).__name__ if self.error else "",
            request_id=self.request_id,
            usage=self.usage,
        )


class _RetryPlan:
    """Decides which model gets the next request, which request, and when."""

    def __init__(
        self, first: Provider, fallbacks: Sequence[Fallback], draft: Draft, policy: Policy
    ) -> None:
        self._provider = first
        self._fallbacks = deque(fallbacks)
        self._draft = draft
        self._policy = policy
        self._waits = self._new_waits()
        self._request = self._fitting_request(None)

    def attempt(self) -> _Attempt:
        """The next attempt."""
        return _Attempt(self._provider, self._request)

    def wait(self, failed: _Attempt, deadline: float) -> float | None:
        """The seconds until the next attempt; None if there is none."""
        error, model = failed.error, failed.request.model
        is_late = asyncio.get_running_loop().time() >= deadline
        if failed.first_byte is not None or error is None or is_late:
            return None
        if isinstance(error, ContextTooLongError):
            shorter = self._draft.shorter()
            if shorter is not None:
                logger.info(
                    "%s: the request is too long for the model; retrying with a shorter request.",
                    model,
                )
                self._request = shorter
                return 0.0
        wait = self._retry_wait(error, deadline)
        if wait is not None:
            logger.info("%s: %s; retrying in %.1f s.", model, error, wait)
            return wait
        return 0.0 if self._fall_back(error, model) else None

    def _fall_back(self, error: Exception, model: str) -> bool:
        if isinstance(error, _CALLER_ERRORS) or not self._fallbacks:
            return False
        try:
            self._request = self._next_request()
        except ContextTooLongError:
            return False  # report the first error, which says more
        self._waits = self._new_waits()
        logger.warning("%s: %s; falling back to %s.", model, error, self._request.model)
        return True

    def _next_request(self) -> ModelRequest:
        fallback = self._fallbacks.popleft()
        self._provider = fallback.provider
        return self._fitting_request(fallback)

    def _fitting_request(self, fallback: Fallback | None) -> ModelRequest:
        """The request for a model, or for the next fallback that it fits."""
        try:
            return self._draft.request(fallback)
        except ContextTooLongError as error:
            if not self._fallbacks:
                raise
            logger.info("%s Trying the next model.", error)
            return self._next_request()

    def _retry_wait(self, error: Exception, deadline: float) -> float | None:
        """The seconds until a retry with the same model; None for no retry."""
        wait = next(self._waits, None)
        if wait is None or not isinstance(error, ModelError) or not error.retryable:
            return None
        wait = max(wait, error.retry_after or 0.0)
        time_left = deadline - asyncio.get_running_loop().time()
        return wait if wait <= min(self._policy.longest_wait, time_left) else None

    def _new_waits(self) -> Iterator[float]:
        policy = self._policy
        return delays(policy.tries - 1, first=policy.first_wait, cap=policy.longest_wait)


class PolicyProvider:
    """A provider and its fallbacks under one policy."""

    def __init__(
        self,
        provider: Provider,
        policy: Policy | None = None,
        *,
        fallbacks: Sequence[Fallback] = (),
    ) -> None:
        self._provider = provider
        self._policy = policy or Policy()
        self._fallbacks = tuple(fallbacks)

    @property
    def name(self) -> str:
        """The family of the first model."""
        return self._provider.name

    def stream(
        self, request: ModelRequest, *, on_attempt: OnAttempt | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Stream the answer of the first model that gives one."""
        return self.answer(_SameRequest(request), on_attempt=on_attempt)

    async def answer(
        self,
        draft: Draft,
        *,
        on_start: OnStart | None = None,
        on_attempt: OnAttempt | None = None,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Stream the answer to a draft, which makes a fitting request for each model.

        Raises ContextTooLongError before sending anything if it fits none of them.
        """
        plan = _RetryPlan(self._provider, self._fallbacks, draft, self._policy)
        deadline = asyncio.get_running_loop().time() + self._policy.timeouts.total
        watch, throttle = Watch(deadline=deadline), _EVENT_THROTTLE.get()
        try:
            while True:
                attempt = plan.attempt()
                if on_start is not None:
                    await on_start(attempt.record("started"))
                slot = self._slot(attempt.provider.name, attempt.request.model)
                events = attempt.stream()
                try:
                    async with _hold_slot(slot, watch), _closing(events):
                        while attempt.outcome != "completed":
                            with watch:
                                event = await anext(events)
                            attempt.record_event(event)
                            if attempt.error is not None:
                                break
                            if isinstance(event, Done):
                                attempt.report(on_attempt)  # immediately: it is billed
                            await throttle.enter()
                            yield event
                except Exception as error:  # noqa: BLE001 - a provider that raises
                    attempt.fail(error)
                finally:
                    attempt.report(on_attempt)
                if attempt.error is None:
                    return
                wait = plan.wait(attempt, deadline)
                if wait is None:
                    yield StreamEventError(attempt.error)
                    return
                await asyncio.sleep(wait)
        finally:
            watch.close()

    async def warm_up(self) -> None:
        """Warm up every provider."""
        for provider in self._providers:
            if isinstance(provider, Warming):
                await provider.warm_up()

    async def close(self) -> None:
        """Close the connections of the running loop."""
        for provider in self._providers:
            await close_provider(provider)

    @property
    def _providers(self) -> list[Provider]:
        return [self._provider, *(fallback.provider for fallback in self._fallbacks)]

    def _slot(self, provider: str, model: str) -> asyncio.Semaphore:
        key = (provider, model, self._policy.max_concurrent_requests)
        slots = _SLOTS.get()
        return slots.setdefault(key, asyncio.Semaphore(self._policy.max_concurrent_requests))


async def close_provider(provider: Provider) -> None:
    """Close a provider's connections, if it has any."""
    if isinstance(provider, Closing):
        await provider.close()


@asynccontextmanager
async def _hold_slot(slot: asyncio.Semaphore, watch: Watch) -> AsyncGenerator[None, None]:
    """Hold a slot; waits for it no longer than the watch allows."""
    with watch:
        await slot.acquire()
    try:
        yield
    finally:
        slot.release()


@asynccontextmanager
async def _closing(events: AsyncIterator[StreamEvent]) -> AsyncGenerator[None, None]:
    """Close the stream on exit, if it can be closed; not every iterator is a generator."""
    try:
        yield
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
