"""What the next call would get, going by those before it."""

from dataclasses import replace

import pytest

from lango.core.context.budget import MARGIN, Calibration
from lango.core.context.model_calls import ModelAttempt, ModelCall
from lango.core.messages.messages import Message, ToolCall
from lango.core.messages.streams import Usage
from lango.insight.context import ContextCut, StoredTalk
from lango.insight.preview import PreviewBasis, basis, preview

WORDS = "many words " * 10


def stored(number: int, role: str, *calls: ToolCall) -> StoredTalk:
    message = Message(role, WORDS if not calls else "", calls)
    return StoredTalk(number, f"t{number}", role, role, (message,))


TALK = [stored(number, ("user", "assistant")[1 - number % 2]) for number in range(1, 9)]
EACH = TALK[0].tokens


def called(reported: int | None = None, **record: object) -> ModelCall:
    usage = None if reported is None else Usage(reported, 1)
    attempt = ModelAttempt("scripted", "demo", 0.0, 1.0, usage=usage)
    call = ModelCall(attempt, 1, budget=1_000, estimated=100, first_seq=1, last_seq=1)
    return replace(call, **record)  # pyright: ignore[reportArgumentType]


def test_the_newest_that_fit_are_kept() -> None:
    found = preview(TALK, PreviewBasis(room=EACH * 3 + 4))  # 4 for the message to come
    assert [one.number for one in found.sections] == [6, 7, 8]
    assert [(cut.first, cut.last, cut.why) for cut in found.cut] == [(1, 5, "budget")]
    assert (found.tokens, found.budget) == (EACH * 3, EACH * 3 + 4)


def test_the_message_to_come_takes_its_place() -> None:
    assert len(preview(TALK, PreviewBasis(room=EACH * 3)).sections) == 2


def test_an_open_turn_stays_whole() -> None:
    talk = TALK[:-1]
    found = preview(talk, PreviewBasis(called(turn="t7"), room=EACH))
    assert [(one.number, one.kind) for one in found.sections] == [(7, "turn")]


def test_an_open_turn_that_is_too_long_is_a_problem() -> None:
    older = ContextCut(1, 2, 2, 9, "not_given")
    found = preview(TALK[:-1], PreviewBasis(room=EACH - 1), [older])
    assert (found.sections, found.cut) == ((), (older,))
    assert "there is room for" in found.problem


def test_a_turn_that_failed_is_history() -> None:
    talk = [*TALK[:7], stored(9, "user"), stored(10, "user")]
    found = preview(talk, PreviewBasis(called(turn="t10"), room=EACH))
    assert [(one.number, one.kind) for one in found.sections] == [(10, "turn")]
    assert (found.cut[-1].last, found.problem) == (9, "")


def test_an_unanswered_call_is_an_open_turn() -> None:
    talk = [*TALK[:-1], stored(8, "assistant", ToolCall("c", "look", "{}"))]
    found = preview(talk, PreviewBasis(room=sum(one.tokens for one in talk[-2:])))
    assert [one.number for one in found.sections] == [7, 8]


def test_nothing_said_yet() -> None:
    found = preview([], PreviewBasis())
    assert (found.sections, found.cut, found.tokens, found.problem) == ((), (), 0, "")


def test_without_a_call_no_limit_is_known() -> None:
    assert basis([], []) == PreviewBasis()


@pytest.mark.parametrize(
    ("calls", "room"),
    [
        ([called()], 1_000),
        ([called(90)], int(1_000 * (1 - MARGIN))),  # from now on with the margin
        ([called(90), called(90, budget=950)], 950),
        ([called(90, why="window", left_out=1)], 1_000),
        ([called(budget=0)], None),
    ],
    ids=["no-report", "first-report", "later-report", "window", "not-recorded"],
)
def test_the_room_of_the_next_call(calls: list[ModelCall], room: int | None) -> None:
    assert basis(calls, TALK[:1]).room == room


@pytest.mark.parametrize("reported", [90, 150], ids=["cheaper", "dearer"])
def test_a_call_without_a_limit_has_what_it_used(reported: int) -> None:
    first = called(reported, budget=EACH)
    learnt = Calibration().after([TALK[0].messages[0]], estimated=100, reported=reported)
    used = sum(learnt.tokens(one.messages[0]) for one in TALK[:3])
    second = called(reported, budget=used, last_seq=3)
    assert basis([first], TALK[:1]).room is None
    assert basis([first, second], TALK[:3]).room is None
    assert basis([first, replace(second, left_out=1)], TALK[:3]).room == used


def test_how_the_model_counts_is_learnt_from_its_own_calls() -> None:
    elsewhere = replace(
        called(200), attempt=ModelAttempt("other", "m", 0.0, 1.0, usage=Usage(200, 1))
    )
    found = basis([elsewhere, called(80), called(70)], TALK[:1]).calibration
    first = Calibration().after([], estimated=100, reported=80)
    second = first.after([TALK[0].messages[0]], estimated=100, reported=70)
    assert found == second


def test_what_bounds_it_is_the_budget_unless_recorded() -> None:
    assert PreviewBasis(called(why="window")).why == "window"
    assert PreviewBasis(called(why="refused")).why == PreviewBasis().why == "budget"
