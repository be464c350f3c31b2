"""What a request may hold, and what is left of a conversation that does not fit."""

import json
import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.core.context.budget import (
    ANSWER_ROOM,
    OTHER_AGENT,
    Calibration,
    Limits,
    fit,
    open_turn,
    request_tokens,
)
from lango.core.context.tokens import message_tokens
from lango.core.messages.history import DEFAULT_TOKEN_BUDGET
from lango.core.messages.messages import Media, Message, Reasoning, ToolCall
from lango.core.messages.pairing import pair_calls
from lango.errors import ContextTooLongError
from tests.support.conversations import problems, random_conversation, text

USER = Message("user", "hi")
THOUSAND = "a" * 2656  # a message of exactly 1,000 tokens


def call(call_id: str = "a") -> Message:
    return Message("assistant", "", (ToolCall(call_id, "look", input="{}"),))


def result(output: str, call_id: str = "a") -> Message:
    return Message("tool", output, (ToolCall(call_id, "look", output=output),))


def tokens(messages: list[Message]) -> int:
    return sum(map(request_tokens, messages))


# --- counting --------------------------------------------------------------------------------


def test_the_estimate_of_text_and_calls_is_the_one_stored() -> None:
    for message in (USER, call(), result('{"n":1}')):
        assert request_tokens(message) == message_tokens(message)


def test_media_count_by_kind_and_thoughts_by_their_text() -> None:
    plain = request_tokens(USER)
    assert request_tokens(replace(USER, media=(Media("image/png", b"x" * 9),))) == plain + 1_600
    thinking = replace(USER, reasoning=(Reasoning("hi", opaque="x" * 1_000),))
    assert request_tokens(thinking) == 2 * plain
    sealed = replace(USER, reasoning=(Reasoning(opaque="x" * 1_000),))
    assert request_tokens(sealed) == plain + 200


# --- calibration -----------------------------------------------------------------------------


def test_the_first_report_is_believed() -> None:
    assert Calibration().after([], estimated=1_000, reported=800).ratio == 0.8


def test_it_rises_at_once_and_falls_slowly() -> None:
    low = Calibration(0.6)
    assert low.after([], estimated=100, reported=150).ratio == 1.5
    falling = Calibration(1.5).after([], estimated=100, reported=50)
    assert falling.ratio == pytest.approx(1.5 - 0.3 * 1.0)


@pytest.mark.parametrize(("reported", "ratio"), [(10, 0.5), (900, 2.0)])
def test_it_is_clamped(reported: int, ratio: float) -> None:
    assert Calibration().after([], estimated=100, reported=reported).ratio == ratio


@pytest.mark.parametrize(("estimated", "reported"), [(0, 10), (10, 0), (-1, 5)])
def test_a_report_that_says_nothing_teaches_nothing(estimated: int, reported: int) -> None:
    known = Calibration(0.7)
    assert known.after([USER], estimated=estimated, reported=reported) == known


def test_what_was_never_sent_is_not_believed_to_be_cheap() -> None:
    old, new = Message("user", THOUSAND), Message("user", THOUSAND + "b")
    cheap = Calibration().after([old], estimated=1_000, reported=600)
    assert cheap.tokens(old) == 600
    assert cheap.tokens(new) == request_tokens(new)
    dear = Calibration().after([old], estimated=1_000, reported=1_500)
    assert dear.tokens(old) == 1_500
    assert dear.tokens(new) == math.ceil(1.5 * request_tokens(new))


# --- room ------------------------------------------------------------------------------------


def test_without_a_window_the_budget_alone_decides() -> None:
    assert Limits().room(Calibration()) == DEFAULT_TOKEN_BUDGET
    assert Limits(500, overhead=400).room(Calibration()) == 500
    assert Limits(None).room(Calibration()) is None


def test_the_window_leaves_what_system_tools_and_answer_do_not_take() -> None:
    limits = Limits(None, window=100_000, overhead=10_000, answer=5_000)
    assert limits.room(Calibration()) == 100_000 * 0.85 - 10_000 - 5_000
    assert limits.room(Calibration(1.0)) == 100_000 * 0.95 - 10_000 - 5_000
    assert limits.room(Calibration(2.0)) == 100_000 * 0.95 - 20_000 - 5_000
    assert limits.room(Calibration(0.5)) == 100_000 * 0.95 - 10_000 - 5_000


def test_the_smaller_of_budget_and_window_counts() -> None:
    assert Limits(1_000, window=100_000).room(Calibration()) == 1_000
    assert Limits(0, window=40_000).room(Calibration()) == 40_000 * 0.85 - ANSWER_ROOM
    assert Limits(0, window=20_000).room(Calibration()) == 20_000 * 0.85 - 5_000
    assert Limits(0, window=4_000).room(Calibration()) == 4_000 * 0.85 - 1_000


def test_a_calibrated_budget_has_a_margin() -> None:
    assert Limits(1_000).room(Calibration(0.9)) == 950


def test_a_window_too_small_for_the_instruction_has_no_room() -> None:
    assert Limits(0, window=1_000, overhead=5_000).room(Calibration()) == 0


# --- fitting ---------------------------------------------------------------------------------


def test_what_fits_is_left_alone() -> None:
    talk = [USER, call(), result("{}")]
    fitted = fit(talk, tokens(talk))
    assert (fitted.messages, fitted.left_out, fitted.shortened) == (talk, 0, ())
    assert fit(talk, None).messages == talk


def test_the_oldest_go_first() -> None:
    talk = [Message("user", THOUSAND), Message("assistant", "one"), USER]
    fitted = fit(talk, 100)
    assert fitted.messages == talk[1:]
    assert fitted.left_out == 1


def test_a_cut_never_begins_between_call_and_result() -> None:
    talk = [Message("user", THOUSAND), call(), result("{}"), Message("assistant", "one"), USER]
    for room in range(tokens([talk[-1]]), tokens(talk)):
        kept = fit(talk, room).messages
        assert problems(kept) == []
        assert kept[-1] == USER


def test_the_open_turn_is_never_cut() -> None:
    talk = [USER, Message("assistant", "hello"), USER, call(), result("{}")]
    assert fit(talk, tokens(talk[2:])).messages == talk[2:]
    with pytest.raises(ContextTooLongError, match="there is room for"):
        fit(talk, tokens(talk[2:]) - 1)


def test_what_other_agents_said_belongs_to_the_open_turn() -> None:
    quoted = Message("user", f"{OTHER_AGENT}, quoted … [other] said: …")
    talk = [Message("assistant", "before"), USER, quoted, call(), result("{}")]
    assert open_turn(talk) == 1
    assert open_turn([quoted]) == 0
    assert open_turn([call(), result("{}")]) == 0
    assert open_turn([]) == 0


def test_messages_of_turns_that_failed_are_history() -> None:
    """No answer stands between them and the open turn."""
    failed = [Message("user", THOUSAND), Message("user", f"again {THOUSAND}")]
    talk = [*failed, USER, call(), result("{}")]
    fitted = fit(talk, tokens(talk) - tokens(failed[:1]))
    assert (fitted.messages, fitted.left_out) == (talk[1:], 1)
    fitted = fit(talk, tokens(talk[2:]))
    assert (fitted.messages, fitted.left_out, fitted.shortened) == (talk[2:], 2, ())


def test_a_caller_that_knows_the_turn_says_where_it_begins() -> None:
    added = Message("user", "what ADK remembers")
    talk = [Message("user", THOUSAND), added, USER]
    assert fit(talk, tokens(talk[1:]), opens=lambda _: 1).messages == talk[1:]
    with pytest.raises(ContextTooLongError):
        fit(talk, tokens(talk[1:]) - 1, opens=lambda _: 1)


def test_a_long_output_of_the_open_turn_is_shortened() -> None:
    output = json.dumps({"lines": [f"line {number}" for number in range(2_000)]})
    talk = [USER, call(), result(output)]
    fitted = fit(talk, 500)
    short = json.loads(fitted.messages[-1].tool_calls[0].output)
    assert tokens(fitted.messages) <= 500
    assert tokens(fitted.messages) > 450
    assert fitted.shortened == ("a",)
    assert (short["truncated"], short["characters"]) == (True, len(output))
    assert output.startswith(short["head"])
    assert output.endswith(short["tail"])
    assert fitted.messages[-1].content == fitted.messages[-1].tool_calls[0].output


def test_short_outputs_stay_when_a_long_one_is_shortened() -> None:
    both = Message("assistant", "", (ToolCall("a", "look"), ToolCall("b", "look")))
    talk = [USER, both, result('{"small":true}', "a"), result("b" * 9_000, "b")]
    fitted = fit(talk, 400)
    assert fitted.messages[2] == talk[2]
    assert fitted.shortened == ("b",)


def test_a_long_output_of_an_older_turn_does_not_drive_the_rest_away() -> None:
    talk = [USER, call(), result("x" * 20_000), Message("assistant", "seen"), USER]
    fitted = fit(talk, 1_000)
    assert len(fitted.messages) == len(talk)
    assert fitted.shortened == ("a",)
    assert tokens(fitted.messages) <= 1_000


def test_an_image_from_a_tool_cannot_be_shortened() -> None:
    shown = replace(result("{}"), media=(Media("image/png", b"x"),))
    with pytest.raises(ContextTooLongError):
        fit([USER, call(), shown], 1_000)


def test_no_room_at_all_is_an_error_not_an_empty_request() -> None:
    with pytest.raises(ContextTooLongError):
        fit([USER], 0)


conversations = st.integers(0, 2**32).map(
    lambda seed: pair_calls(random_conversation(Random(seed)))
)
calibrations = st.one_of(
    st.just(Calibration()), st.floats(0.5, 2.0).map(lambda ratio: Calibration(ratio))
)


@given(conversations, st.integers(0, 3_000), calibrations)
def test_it_fits_and_stays_valid_or_says_that_it_cannot(
    talk: list[Message], room: int, calibration: Calibration
) -> None:
    last = talk[open_turn(talk)]
    try:
        fitted = fit(talk, room, calibration)
    except ContextTooLongError:
        turn = [m for m in talk[open_turn(talk) :] if not m.is_tool]
        outputs = sum(m.is_tool for m in talk[open_turn(talk) :])
        least = sum(map(calibration.tokens, turn))
        assert least + 150 * 2 * outputs > room, "it could have been shortened"
        return
    assert sum(map(calibration.tokens, fitted.messages)) == fitted.tokens <= room
    assert last in fitted.messages
    assert problems(fitted.messages) == []
    assert pair_calls(fitted.messages) == fitted.messages
    assert fitted.left_out + len(fitted.messages) == len(talk)


@given(conversations, calibrations)
def test_what_fits_is_never_touched(talk: list[Message], calibration: Calibration) -> None:
    room = sum(map(calibration.tokens, talk))
    assert fit(talk, room, calibration).messages == talk


def with_failed_turns(seed: int) -> tuple[list[Message], int]:
    """A conversation with messages before the open turn that got no answer, and where it begins."""
    draw = Random(seed)
    talk = pair_calls(random_conversation(draw))
    start = open_turn(talk)
    failed = [Message("user", text(draw, 400)) for _ in range(draw.randint(1, 5))]
    return [*talk[:start], *failed, *talk[start:]], start + len(failed)


@given(st.integers(0, 2**32), st.integers(0, 3_000), calibrations)
def test_failed_turns_cost_the_open_turn_nothing(
    seed: int, room: int, calibration: Calibration
) -> None:
    """It is sent as if it were alone, and what fits of the rest before it, with its pairs."""
    talk, start = with_failed_turns(seed)
    try:
        alone = fit(talk[start:], room, calibration)
    except ContextTooLongError:
        with pytest.raises(ContextTooLongError):
            fit(talk, room, calibration)
        return
    fitted = fit(talk, room, calibration)
    assert fitted.messages[len(fitted.messages) - len(alone.messages) :] == alone.messages
    assert sum(map(calibration.tokens, fitted.messages)) == fitted.tokens <= room
    assert problems(fitted.messages) == []
    assert fitted.left_out + len(fitted.messages) == len(talk)
