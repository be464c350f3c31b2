"""Turn events back from their JSON."""

import inspect
import json

import pytest

from lango import errors
from lango.core.turns.event_json import error_of, event_of
from lango.core.turns.events import UNSAID, Failed, TurnEvent, error_data
from lango.errors import AgentNotFoundError, LangoError, RateLimitedError, TurnError
from tests.unit.core.turns.test_events import TOLD

OURS = sorted(
    (
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, LangoError)
    ),
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize(
    "event", [event for event, _, _ in TOLD], ids=lambda event: str(event)[:20]
)
def test_an_event_comes_back(event: TurnEvent) -> None:
    back = event_of(event.type, json.loads(json.dumps(event.data())))
    assert back is not None
    assert back.data() == event.data()
    if not isinstance(event, Failed):
        assert back == event


def test_what_a_later_version_adds_is_left_out() -> None:
    assert event_of("message.reset", {"message": "m", "mood": "sad"}) is not None
    assert event_of("completed", {"usage": {"input": 1, "smell": 2}}) is not None
    assert event_of("accepted", {"number": 1}) is None


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_an_error_comes_back_as_what_it_was(kind: type[LangoError]) -> None:
    given = AgentNotFoundError("ghost") if kind is AgentNotFoundError else kind("That is why.")
    back = error_of(json.loads(json.dumps(error_data(given))))
    assert type(back) is kind
    assert str(back) == str(given)
    assert vars(back).keys() == vars(given).keys()


def test_the_words_of_a_model_error_are_not_said_twice() -> None:
    given = RateLimitedError("Slow down.", provider="openai", model="gpt-5", status=429)
    assert str(error_of(error_data(given))) == "Slow down. (openai gpt-5, HTTP 429)"


def test_the_name_of_an_agent_that_was_not_found_comes_back() -> None:
    back = error_of(error_data(AgentNotFoundError("ghost", ["helper"])))
    assert isinstance(back, AgentNotFoundError)
    assert (back.name, back.valid) == ("ghost", ())


@pytest.mark.parametrize("kind", ["InternalError", "Fenced", "Any", "annotations", "NoSuchError"])
def test_what_is_no_error_of_ours_is_a_turn_error(kind: str) -> None:
    back = error_of({"type": kind, "message": UNSAID, "retryable": False})
    assert type(back) is TurnError
    assert str(back) == UNSAID
