"""`reload(append(e)) == normalise(e)` for everything an ADK event can hold."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count

from google.adk.events.event import Event
from google.adk.sessions.session import Session
from google.genai import types
from hypothesis import HealthCheck, Phase, given, settings

from faults.harness import whole
from faults.store.fates import fate_of
from faults.store.session_model import Model, ModelSession
from lango.adk.sessions.normalise import normalise
from lango.errors import InvalidIdError
from lango.testing.events import adk_events, ordinary_events
from lango.testing.same import differences

BATCH = 50
"""Events that share a session: a session for each would take twice the time."""

# Not derandomised anywhere: each run looks at other events than the last.
EVERY_TIME_NEW = settings(
    derandomize=False,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class RoundTrip:
    """Appends events to a new session by one service, and reads them by another."""

    def __init__(self, runner: asyncio.Runner, url: str, tenant: str) -> None:
        self._runner = runner
        self._writer = whole(url, tenant)
        self._reader = whole(url, tenant)
        self._numbers = count()

    def open(self) -> None:
        self._runner.run(self._writer.store.open())
        self._runner.run(self._reader.store.open())

    def close(self) -> None:
        self._runner.run(self._writer.close())
        self._runner.run(self._reader.close())

    def problems(self, events: list[Event]) -> list[str]:
        return self._runner.run(self._problems(events))

    async def _problems(self, events: list[Event]) -> list[str]:
        # An app of its own, so that shared states are these events' alone.
        app = f"app-{next(self._numbers)}"
        session = await self._writer.create_session(app_name=app, user_id="user", session_id="s")
        model = Model()
        expected = model.create(app, "user", "s", {})
        found: list[str] = []
        for event in events:
            refused = _refusal(model, expected, event)
            if (answer := await self._refused(session, event)) != refused:
                found.append(f"{answer or 'kept'}, not {refused or 'kept'}")
        loaded = await self._reader.get_session(app_name=app, user_id="user", session_id="s")
        assert loaded is not None
        found += differences(expected.events, loaded.events)
        return found + differences(model.state(expected), loaded.state)

    async def _refused(self, session: Session, event: Event) -> str:
        try:
            await self._writer.append_event(session, event)
        except InvalidIdError as error:
            return str(error)
        return ""


def _refusal(model: Model, session: ModelSession, event: Event) -> str:
    try:
        model.append(session, event)
    except InvalidIdError as error:
        return str(error)
    return ""


@contextmanager
def round_trip(url: str, tenant: str) -> Generator[RoundTrip]:
    with asyncio.Runner() as runner:
        trip = RoundTrip(runner, url, tenant)
        trip.open()
        try:
            yield trip
        finally:
            trip.close()


def generated(examples: int) -> list[Event]:
    """So many events, made without looking at them."""
    events: list[Event] = []

    @settings(EVERY_TIME_NEW, max_examples=examples, phases=[Phase.generate], database=None)
    @given(adk_events())
    def collect(event: Event) -> None:
        events.append(event)

    collect()
    return events


def smallest(trip: RoundTrip, examples: int) -> None:
    """Raise for the smallest event that does not survive alone, if there is one."""

    @settings(EVERY_TIME_NEW, max_examples=examples)
    @given(adk_events())
    def event_survives(event: Event) -> None:
        assert trip.problems([event]) == []

    event_survives()


def test_round_trip(store_url: str, tenant: str) -> None:
    examples = 2_000 if store_url.startswith("sqlite") else 300
    events = generated(examples)
    assert len(events) >= examples
    with round_trip(store_url, tenant) as trip:
        for start in range(0, len(events), BATCH):
            batch = events[start : start + BATCH]
            again = [event.model_copy(deep=True) for event in batch]
            if problems := trip.problems(batch):
                alone = [(event, trip.problems([event])) for event in again]
                guilty = [(event, found) for event, found in alone if found]
                smallest(trip, examples)
                raise AssertionError(f"{problems[:5]}; alone: {guilty[:1]}")


@settings(EVERY_TIME_NEW, max_examples=500)
@given(adk_events())
def test_normalise_is_idempotent(event: Event) -> None:
    try:
        once = normalise(event)
    except InvalidIdError:
        return
    assert differences(once, normalise(once)) == []


@settings(EVERY_TIME_NEW, max_examples=300)
@given(ordinary_events())
def test_normalise_changes_only_the_response_role_of_ordinary_events(event: Event) -> None:
    expected = event.model_copy(deep=True)
    if expected.content and expected.get_function_responses():
        expected.content = types.Content(role="function", parts=expected.content.parts)
    assert differences(expected, normalise(event)) == []
    assert fate_of(event) == "kept"
