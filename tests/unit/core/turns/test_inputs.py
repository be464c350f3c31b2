"""Inputs of turns: what is said, with which files, and what makes two of them the same."""

import pytest

from lango.core.turns.events import Answer
from lango.core.turns.inputs import (
    FileRef,
    as_submitted,
    files_in,
    input_of,
    message_or_answers,
    parts_in,
    title_of,
)
from lango.core.turns.states import NewTurn

PLAN = FileRef("plan.pdf", 0)


def test_what_goes_in_comes_out() -> None:
    given = input_of("Look at this.", [PLAN, FileRef("a.txt", 3)])
    assert message_or_answers(given) == "Look at this."
    assert files_in(given) == [PLAN, FileRef("a.txt", 3)]


def test_without_files_nothing_is_said_of_them() -> None:
    assert input_of("hi") == {"text": "hi"}
    assert files_in(input_of("hi")) == files_in(input_of([Answer("call", True)])) == []


def test_a_version_that_came_since_makes_no_other_turn() -> None:
    newer = input_of("hi", [FileRef("plan.pdf", 1)])
    assert as_submitted(newer) == {"text": "hi", "files": ["plan.pdf"]}
    hashes = [NewTurn(given).hash("app") for given in (input_of("hi", [PLAN]), newer)]
    assert hashes[0] == hashes[1] != NewTurn(input_of("hi")).hash("app")


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("  roll dice,\n twice ", "roll dice, twice"),
        ("", ""),
        ("a" * 60, "a" * 60),
        (f"{'a' * 58} long", f"{'a' * 58}…"),
        ("b" * 5_000, f"{'b' * 59}…"),
        ("NUL \x00 and \ud800", "NUL \ufffd and \ufffd"),
    ],
)
def test_a_session_is_titled_by_its_first_message(message: str, title: str) -> None:
    assert title_of(message) == title


def test_parts_are_what_the_agent_gets() -> None:
    shown = [{"text": "Look"}, {"inline_data": {"mime_type": "image/png", "data": "AAAA"}}]
    given = input_of("Look", parts=shown)
    assert parts_in(given) == shown
    assert message_or_answers(given) == "Look"
    assert parts_in(input_of("hi")) == []
