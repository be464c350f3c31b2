"""What the trials of turns look for is found when it is there."""

from google.adk.events.event import Event
from google.genai import types

from faults.turns.chats import Attempt, stolen
from faults.turns.order import wrongs
from faults.turns.tally import Shape, count, differences, story_of

SHAPE = Shape(rounds=2)


def said(author: str, *parts: types.Part) -> Event:
    return Event(author=author, content=types.Content(role=author, parts=list(parts)))


def turn_of(name: str) -> list[Event]:
    """What a session holds of a turn that went well."""
    events = [said("user", types.Part(text=SHAPE.message(name)))]
    for mark in SHAPE.marks(name):
        call = types.FunctionCall(id=mark, name="mark", args={"name": mark})
        result = types.FunctionResponse(id=mark, name="mark", response={"result": "marked"})
        events.append(said("agent", types.Part(function_call=call)))
        events.append(said("agent", types.Part(function_response=result)))
    return [*events, said("agent", types.Part(text="done"))]


def marks_of(*names: str) -> list[str]:
    return [f"mark {mark}" for name in names for mark in SHAPE.marks(name)]


def test_a_history_that_holds_everything_once_is_right() -> None:
    history = story_of([*turn_of("one"), *turn_of("two")])
    assert differences(SHAPE, ["one", "two"], history) == []
    tally = count(SHAPE, ["one", "two"], [history], marks_of("one", "two"))
    assert (tally.turns, tally.duplicates, tally.repeated, tally.unpaired, tally.lost) == (
        2, 0, 0, 0, 0,
    )  # fmt: skip


def test_what_a_history_has_twice_is_found() -> None:
    events = turn_of("one")
    history = story_of([events[0], *events])
    assert differences(SHAPE, ["one"], history) == ["1 too many: user one"]
    tally = count(SHAPE, ["one"], [history], [*marks_of("one"), "mark one.0.0"])
    assert (tally.duplicates, tally.repeated) == (1, 1)


def test_what_a_history_lacks_is_found() -> None:
    events = turn_of("one")
    history = story_of([*events[:2], *events[3:-1]])
    assert differences(SHAPE, ["one"], history) == [
        "missing: result one.0.0",
        "missing: answer one",
    ]
    tally = count(SHAPE, ["one"], [history], marks_of("one"))
    assert (tally.unpaired, tally.lost) == (1, 1)


def test_turns_in_the_wrong_order_and_mixed_are_found() -> None:
    one, two = turn_of("one"), turn_of("two")
    assert "in the order" in differences(SHAPE, ["one", "two"], story_of([*two, *one]))[0]
    mixed = story_of([*one[:3], *two, *one[3:]])
    assert differences(SHAPE, ["one", "two"], mixed) != []


def test_an_unknown_outcome_is_gathered() -> None:
    events = turn_of("one")
    unknown: set[str] = set()
    response = {"error": "interrupted, outcome unknown"}
    result = types.FunctionResponse(id="one.0.0", name="mark", response=response)
    events[2] = said("agent", types.Part(function_response=result))
    story_of(events, unknown)
    assert unknown == {"one.0.0"}


def test_turns_that_overlap_are_found() -> None:
    handed_in = {"s": ["s-1", "s-2"]}
    apart = [["begin", "s-1"], ["end", "s-1"], ["begin", "s-2"], ["end", "s-2"]]
    assert wrongs(handed_in, apart) == []
    overlap = [apart[0], apart[2], apart[1], apart[3]]
    assert wrongs(handed_in, overlap) == ["s-2 began while s-1 ran"]
    assert "in the order" in wrongs(handed_in, [*apart[2:], *apart[:2]])[0]
    assert "in the order" in wrongs(handed_in, apart[:2])[0]


def test_a_turn_taken_from_a_living_process_is_found() -> None:
    began = [Attempt("10", 1.0, "turn", 1), Attempt("11", 5.0, "turn", 2)]
    assert stolen(began, {"10": 3.0}) == []
    assert stolen(began, {}) == ["turn turn was taken from ['10'] without a kill"]
    assert stolen(began, {"10": 6.0}) != []
    assert stolen(began, {"12": 3.0}) != []


def test_an_attempt_that_left_no_word_needs_some_death() -> None:
    began = [Attempt("11", 5.0, "turn", 2)]
    assert stolen(began, {"10": 3.0}) == []
    assert stolen(began, {"11": 3.0}) != []
    assert stolen(began, {}) != []
