"""Waiting, trying again, falling back: one policy for all wires."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from lango.core.context.model_calls import ModelAttempt
from lango.core.messages.messages import Message
from lango.core.messages.streams import Done, StreamEvent, StreamEventError, TextDelta, Usage
from lango.errors import (
    AuthenticationError,
    BadRequestError,
    BadStreamError,
    ContextTooLongError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    RateLimitedError,
)
from lango.providers.base import ModelRequest
from lango.providers.policy.loop_throttle import PER_PASS
from lango.providers.policy.retry import Fallback, Policy, PolicyProvider
from lango.providers.policy.timeouts import Timeouts
from lango.providers.shared.assembly import Assembly
from tests.providers.conversation import ask, done_of, error_of, events_of, say, text_of

FAST = Policy(tries=3, first_wait=0.001, longest_wait=0.5)


class Model:
    """Answers by its script: a text, an error to say, or one after some text."""

    def __init__(self, *script: str | Exception | tuple[str, Exception], name: str = "m") -> None:
        self._script = list(script)
        self.name = name
        self.asked: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        self.asked.append(request)
        step = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        text, error = step if isinstance(step, tuple) else ("", step)
        if isinstance(error, str):
            text, error = error, None
        if text:
            yield TextDelta(text)
        if error is not None:
            yield StreamEventError(error)
            return
        yield Done("stop", Usage(1, 1), request_id="req_1")


async def test_a_passing_fault_is_not_seen() -> None:
    model = Model(ModelUnavailableError(), RateLimitedError(), "Hello.")
    attempts: list[ModelAttempt] = []
    provider = PolicyProvider(model, FAST)
    events = await events_of(provider.stream(ask(), on_attempt=attempts.append))
    assert text_of(events) == "Hello."
    result = [(attempt.outcome, attempt.error) for attempt in attempts]
    assert result == [
        ("failed", "ModelUnavailableError"),
        ("failed", "RateLimitedError"),
        ("completed", ""),
    ]
    assert attempts[-1].usage == Usage(1, 1)
    assert attempts[-1].request_id == "req_1"
    assert [attempt.first_byte is None for attempt in attempts] == [True, True, False]


async def test_it_gives_up_at_last() -> None:
    model = Model(ModelUnavailableError("still down"))
    error = error_of(await say(PolicyProvider(model, FAST), ask()))
    assert isinstance(error, ModelUnavailableError)
    assert len(model.asked) == FAST.tries


@pytest.mark.parametrize("error", [AuthenticationError(), BadRequestError(), ContextTooLongError()])
async def test_what_waiting_cannot_cure_is_not_tried_again(error: ModelError) -> None:
    model = Model(error)
    assert error_of(await say(PolicyProvider(model, FAST), ask())) is error
    assert len(model.asked) == 1


async def test_nothing_is_tried_again_after_the_first_event() -> None:
    model = Model(("Hel", BadStreamError()), "Hello.")
    other = Model("Other.")
    provider = PolicyProvider(model, FAST, fallbacks=[Fallback(other, "b")])
    events = await say(provider, ask())
    assert (text_of(events), len(model.asked), len(other.asked)) == ("Hel", 1, 0)
    assert isinstance(error_of(events), BadStreamError)


async def test_retry_after_is_honoured() -> None:
    model = Model(RateLimitedError(retry_after=0.2), "Hello.")
    began = time.monotonic()
    assert text_of(await say(PolicyProvider(model, FAST), ask())) == "Hello."
    assert time.monotonic() - began >= 0.2


async def test_a_retry_waits_no_longer_than_the_policy_allows() -> None:
    model = Model(RateLimitedError(retry_after=3_600))
    began = time.monotonic()
    error = error_of(await say(PolicyProvider(model, FAST), ask()))
    assert error.retry_after == 3_600
    assert (len(model.asked), time.monotonic() - began < 600) == (1, True)


@pytest.mark.parametrize("error", [RateLimitedError(retry_after=60), AuthenticationError()])
async def test_fallbacks(error: ModelError) -> None:
    first, second = Model(error, name="a"), Model("Hello.", name="b")
    provider = PolicyProvider(first, FAST, fallbacks=[Fallback(second, "other-model")])
    assert provider.name == "a"
    assert text_of(await say(provider, ask("first-model"))) == "Hello."
    assert [request.model for request in second.asked] == ["other-model"]
    assert second.asked[0] == replace(first.asked[0], model="other-model")


async def test_no_fallback_for_what_lies_with_us() -> None:
    other = Model("Hello.")
    provider = PolicyProvider(Model(BadRequestError()), FAST, fallbacks=[Fallback(other, "b")])
    assert isinstance(error_of(await say(provider, ask())), BadRequestError)
    assert other.asked == []


class LongDraft:
    """A draft that models take by their windows, and that can be made shorter once for each."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._shortened = False

    def request(self, fallback: Fallback | None) -> ModelRequest:
        self._shortened = False
        self._model = fallback.model if fallback else "first"
        if fallback and fallback.window and fallback.window < self._length:
            raise ContextTooLongError(f"{fallback.model} is too small")
        return ask(self._model, [Message("user", "x" * self._length)])

    def shorter(self) -> ModelRequest | None:
        if self._shortened:
            return None
        self._shortened = True
        return ask(self._model, [Message("user", "x" * (self._length // 2))])


def lengths(model: Model) -> list[int]:
    return [len(request.messages[0].content) for request in model.asked]


async def test_what_is_too_long_is_sent_shorter_to_the_same_model_and_then_to_another() -> None:
    first = Model(ContextTooLongError(), ContextTooLongError())
    second = Model(ContextTooLongError(), "Hello.")
    provider = PolicyProvider(first, FAST, fallbacks=[Fallback(second, "b")])
    assert text_of(await events_of(provider.answer(LongDraft(100)))) == "Hello."
    assert (lengths(first), lengths(second)) == ([100, 50], [100, 50])


async def test_a_model_with_too_small_a_window_is_passed_over() -> None:
    first, small, large = Model(AuthenticationError()), Model("Small."), Model("Large.")
    fallbacks = [Fallback(small, "small", 50), Fallback(large, "large", 500)]
    provider = PolicyProvider(first, FAST, fallbacks=fallbacks)
    assert text_of(await events_of(provider.answer(LongDraft(100)))) == "Large."
    assert small.asked == []
    provider = PolicyProvider(first, FAST, fallbacks=fallbacks[:1])
    error = error_of(await events_of(provider.answer(LongDraft(100))))
    assert isinstance(error, AuthenticationError)
    assert small.asked == []


async def test_the_error_is_that_of_the_last_fallback() -> None:
    provider = PolicyProvider(
        Model(AuthenticationError()), FAST, fallbacks=[Fallback(Model(ModelTimeoutError()), "b")]
    )
    assert isinstance(error_of(await say(provider, ask())), ModelTimeoutError)


class Odd:
    """A provider that does not keep the contract, or takes its time."""

    name = "odd"

    def __init__(self, work: Callable[[], AsyncIterator[StreamEvent]]) -> None:
        self._work = work

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        del request
        return self._work()


async def test_the_total_time_is_bounded() -> None:
    async def endless() -> AsyncIterator[StreamEvent]:
        while True:
            yield TextDelta("on ")
            await asyncio.sleep(0.05)

    policy = replace(FAST, timeouts=Timeouts(total=0.3))
    events = await say(PolicyProvider(Odd(endless), policy), ask("m"))
    error = error_of(events)
    assert isinstance(error, ModelTimeoutError)
    assert error.partial_text == text_of(events)
    assert (error.provider, error.model) == ("odd", "m")


async def test_no_fallback_is_asked_after_the_time_limit() -> None:
    async def silent() -> AsyncIterator[StreamEvent]:
        await asyncio.Event().wait()
        yield TextDelta("never")

    other = Model("Hello.")
    policy = replace(FAST, timeouts=Timeouts(total=0.1))
    provider = PolicyProvider(Odd(silent), policy, fallbacks=[Fallback(other, "b")])
    assert isinstance(error_of(await say(provider, ask())), ModelTimeoutError)
    assert other.asked == []


async def test_a_provider_that_fails_to_close_frees_its_slot() -> None:
    async def clumsy() -> AsyncIterator[StreamEvent]:
        try:
            yield TextDelta("Hel")
            yield StreamEventError(BadStreamError())
        finally:
            raise OSError("cannot close")

    provider = PolicyProvider(Odd(clumsy), replace(FAST, max_concurrent_requests=1))
    for _ in range(2):
        async with asyncio.timeout(5):
            events = await say(provider, ask("clumsy"))
        assert text_of(events) == "Hel"
        assert isinstance(events[-1], StreamEventError)


async def test_a_stream_without_an_end_is_broken() -> None:
    async def short() -> AsyncIterator[StreamEvent]:
        yield TextDelta("Hel")

    events = await say(PolicyProvider(Odd(short), FAST), ask())
    assert isinstance(error_of(events), BadStreamError)
    assert error_of(events).partial_text == "Hel"


async def test_an_exception_is_an_error_too() -> None:
    async def failing() -> AsyncIterator[StreamEvent]:
        raise ZeroDivisionError
        yield  # pyright: ignore[reportUnreachable]

    (event,) = await say(PolicyProvider(Odd(failing), FAST), ask())
    assert isinstance(event, StreamEventError)
    assert isinstance(event.error, ZeroDivisionError)


async def test_so_many_requests_of_a_model_at_once_and_no_more() -> None:
    running, most = 0, 0

    async def counted() -> AsyncIterator[StreamEvent]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        yield Done("stop")

    provider = PolicyProvider(Odd(counted), replace(FAST, max_concurrent_requests=2))
    other = PolicyProvider(Odd(counted), replace(FAST, max_concurrent_requests=2))
    model_request = [say(each, ask("capped")) for each in (provider, other) for _ in range(4)]
    for events in await asyncio.gather(*model_request):
        done_of(events)
    assert most == 2


async def test_answers_that_come_together_come_in_a_few_at_a_time() -> None:
    crowd, heard = 5 * PER_PASS, 0
    provider = PolicyProvider(Model("Hello."), replace(FAST, max_concurrent_requests=crowd))

    async def hear() -> None:
        nonlocal heard
        async for _ in provider.stream(ask()):
            heard += 1

    hearing = [asyncio.create_task(hear()) for _ in range(crowd)]
    counts = [0]
    while not all(task.done() for task in hearing):
        await asyncio.sleep(0)
        counts.append(heard)
    assert max(now - before for before, now in pairwise(counts)) == PER_PASS
    assert heard == 2 * crowd  # the text and the end of each


async def test_a_consumer_that_leaves_frees_its_slot() -> None:
    closed = asyncio.Event()

    async def chatty() -> AsyncIterator[StreamEvent]:
        try:
            while True:
                yield TextDelta("on ")
        finally:
            closed.set()

    attempts: list[ModelAttempt] = []
    provider = PolicyProvider(Odd(chatty), replace(FAST, max_concurrent_requests=1))
    stream = provider.stream(ask("left"), on_attempt=attempts.append)
    await anext(stream)
    await stream.aclose()
    assert closed.is_set()
    assert [attempt.outcome for attempt in attempts] == ["cancelled"]
    again = provider.stream(ask("left"))
    async with asyncio.timeout(5):
        await anext(again)
    await again.aclose()


async def test_policy_is_usable_from_several_loops() -> None:
    provider = PolicyProvider(Model("Hello."), replace(FAST, max_concurrent_requests=1))
    await say(provider, ask("loops"))
    events = await asyncio.to_thread(lambda: asyncio.run(say(provider, ask("loops"))))
    assert text_of(events) == "Hello."


class Metered(Model):
    """Says what the prompt took before anything else, as some vendors do."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        answer = Assembly(self.name, request)
        answer.usage = Usage(70, 1)
        async for event in super().stream(request):
            yield event


async def test_a_stream_that_is_cut_off_has_what_it_said_of_its_usage() -> None:
    attempts: list[ModelAttempt] = []
    model = Metered(("Hel", BadStreamError()), "Hello.")
    for _ in range(2):
        stream = PolicyProvider(model, FAST).stream(ask(), on_attempt=attempts.append)
        await anext(stream)
        await stream.aclose() if attempts else await events_of(stream)
    await events_of(PolicyProvider(model, FAST).stream(ask(), on_attempt=attempts.append))
    assert [(attempt.outcome, attempt.usage) for attempt in attempts] == [
        ("failed", Usage(70, 1)),
        ("cancelled", Usage(70, 1)),
        ("completed", Usage(1, 1)),
    ]


async def test_nothing_is_sent_that_could_not_be_noted_before() -> None:
    """Nor is it taken for a fault of the model, which another one could mend."""

    async def refuse(attempt: ModelAttempt) -> None:
        assert (attempt.outcome, attempt.provider) == ("started", "m")
        raise OSError("no space to note it")

    attempts: list[ModelAttempt] = []
    model, other = Model("Hello."), Model("Hello.")
    provider = PolicyProvider(model, FAST, fallbacks=[Fallback(other, "o")])
    with pytest.raises(OSError, match="no space"):
        await events_of(
            provider.answer(FittingRequest(ask()), on_start=refuse, on_attempt=attempts.append)
        )
    assert (model.asked, other.asked, attempts) == ([], [], [])


@dataclass(frozen=True)
class FittingRequest:
    """A request that fits every model."""

    made: ModelRequest

    def request(self, fallback: Fallback | None) -> ModelRequest:
        del fallback
        return self.made

    def shorter(self) -> ModelRequest | None:
        return None
