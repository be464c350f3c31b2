"""One answer's deltas on their way past ADK."""

import asyncio

from google.adk.events.event import Event
from google.adk.models.llm_response import LlmResponse

from lango.adk.models.direct_deltas import AnswerDeltas, DirectDeltas
from lango.core.messages.streams import TextDelta, ThoughtDelta
from lango.core.turns.events import MessageDelta, ReasoningDelta, TurnEvent


class Turn:
    """A turn that notes what is published."""

    def __init__(self) -> None:
        self.published: list[TurnEvent] = []
        self.abort = asyncio.Event()
        self.direct = DirectDeltas(self.published.append, self.abort)
        self.answer = AnswerDeltas(self.direct)

    def first(self, text: str) -> LlmResponse:
        """The partial response that ADK gets."""
        response = self.answer.partial(TextDelta(text))
        assert response is not None
        return response

    def read(self, text: str, *, is_thought: bool) -> TurnEvent:
        return ReasoningDelta("m", text) if is_thought else MessageDelta("m", text)


def event_of(response: LlmResponse, **metadata: str) -> Event:
    own = {**(response.custom_metadata or {}), **metadata}
    return Event(author="root", partial=True, custom_metadata=own)


def test_deltas_before_the_first_event_are_published_with_it() -> None:
    turn = Turn()
    first = turn.first("one")
    assert turn.answer.partial(TextDelta(" two")) is None
    assert turn.answer.partial(ThoughtDelta("hm")) is None
    assert turn.published == []
    turn.direct.bind(event_of(first), turn.read)
    assert turn.answer.partial(TextDelta(" three")) is None
    events = [MessageDelta("m", " two"), ReasoningDelta("m", "hm"), MessageDelta("m", " three")]
    assert turn.published == events


def test_the_number_of_the_stream_is_taken_out_of_the_event() -> None:
    turn = Turn()
    event = event_of(turn.first("one"))
    turn.direct.bind(event, turn.read)
    assert event.custom_metadata is None
    other = event_of(LlmResponse(), mine="stays")
    turn.direct.bind(other, turn.read)
    assert other.custom_metadata == {"mine": "stays"}


def test_an_event_opens_its_own_stream_only() -> None:
    turn = Turn()
    one, two = turn.first("one"), AnswerDeltas(turn.direct)
    opened = two.partial(TextDelta("uno"))
    assert opened is not None
    turn.direct.bind(event_of(one), turn.read)
    assert two.partial(TextDelta(" dos")) is None
    assert turn.published == []
    turn.direct.bind(event_of(opened), turn.read)
    assert turn.published == [MessageDelta("m", " dos")]


def test_after_an_abort_adk_gets_the_next_delta_and_can_stop() -> None:
    turn = Turn()
    turn.direct.bind(event_of(turn.first("one")), turn.read)
    turn.abort.set()
    assert turn.answer.partial(TextDelta(" two")) is not None
    assert turn.published == []
