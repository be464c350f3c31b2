"""What is known of how models count, and of which conversation."""

from lango.core.context.budget import Calibration
from lango.core.context.calibrations import Calibrations, ModelConversation
from lango.core.messages.messages import Message

A, B, C, D = (Message("user", letter) for letter in "abcd")
LEARNT = Calibration(0.7, frozenset({hash(A)}))


def talk(*messages: Message) -> ModelConversation:
    return ModelConversation("openai", "gpt-5", talk=messages)


def test_a_session_is_known_by_its_name() -> None:
    known = Calibrations()
    session = ModelConversation("openai", "gpt-5", ("app", "user", "one"), (A,))
    known.learn(session, LEARNT)
    assert known.of(ModelConversation("openai", "gpt-5", ("app", "user", "one"), (B, C))) is LEARNT
    assert (
        known.of(ModelConversation("openai", "gpt-5", ("app", "user", "two"), (A,))).ratio is None
    )
    assert (
        known.of(ModelConversation("openai", "gpt-4", ("app", "user", "one"), (A,))).ratio is None
    )
    assert known.of(talk(A)).ratio is None


def test_a_conversation_is_known_by_its_end() -> None:
    known = Calibrations()
    known.learn(talk(D, A, B, C), LEARNT)
    assert known.of(talk(D, A, B, C)) is LEARNT
    assert known.of(talk(A, B, C, D, D)) is LEARNT, "a window may begin anywhere"
    assert known.of(talk(B, C)).ratio is None
    assert known.of(talk(A, D, B, C)).ratio is None
    assert known.of(ModelConversation("gemini", "gpt-5", talk=(A, B, C))).ratio is None


def test_what_goes_on_takes_the_place_of_what_was() -> None:
    known = Calibrations()
    known.learn(talk(A), Calibration(1.0))
    known.learn(talk(A, B, C), LEARNT)
    assert len(known) == 1
    assert known.of(talk(A, B, C, D)) is LEARNT


def test_an_empty_conversation_learns_nothing() -> None:
    known = Calibrations()
    known.learn(talk(), LEARNT)
    assert len(known) == 0
    assert known.of(talk()).ratio is None


def test_the_oldest_is_forgotten() -> None:
    known = Calibrations(most=2)
    for message in (A, B, C):
        known.learn(talk(message), LEARNT)
    assert len(known) == 2
    assert known.of(talk(A)).ratio is None
    assert known.of(talk(C)) is LEARNT
