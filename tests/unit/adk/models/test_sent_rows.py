"""Which stored messages a request was made of."""

import json

from lango.adk.models.sent_rows import sent_span
from lango.core.messages.messages import Message, ToolCall
from lango.core.messages.pairing import INTERRUPTED, pair_calls
from lango.store.sessions.entries import StoredMessage


def row(
    seq: int, role: str, content: str = "", author: str = "root", **calls: str
) -> StoredMessage:
    """A row; each call or answer by its id."""
    side = "output" if role == "tool" else "input"
    nothing: dict[str, str] = {}
    made = [{"id": i, "name": name, side: nothing} for i, name in calls.items()]
    text = json.dumps(made) if made else None
    return StoredMessage(seq, f"e{seq}", "turn", role, author, content, text, 1, 0.0, None, None)


ROWS = [
    row(1, "user", "hello", "user"),
    row(2, "assistant", "hi"),
    row(3, "control"),
    row(4, "user", "look twice", "user"),
    row(5, "assistant", "", a="look", b="look"),
    row(6, "tool", "", a="look", b="look"),
]
TALK = [
    Message("user", "hello"),
    Message("assistant", "hi"),
    Message("user", "look twice"),
    Message("assistant", "", (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))),
    Message("tool", "{}", (ToolCall("a", "look", output="{}"),)),
    Message("tool", "{}", (ToolCall("b", "look", output="{}"),)),
]


def test_the_whole_of_it_and_every_cut() -> None:
    firsts = [1, 2, 4, 5]
    for cut, first in enumerate(firsts):
        assert sent_span(ROWS, TALK[cut:]) == (first, 6)


def test_a_cut_inside_a_row_is_not_exact() -> None:
    assert sent_span(ROWS, TALK[5:]) is None


def test_nothing_sent_and_nothing_stored() -> None:
    assert sent_span(ROWS, []) is None
    assert sent_span([], TALK) is None


def test_words_that_are_not_stored_make_it_inexact() -> None:
    assert sent_span(ROWS, [*TALK, Message("user", "continue")]) is None
    assert sent_span(ROWS, [Message("user", "an example"), *TALK]) is None


def test_a_row_that_was_not_shown_makes_it_inexact() -> None:
    assert sent_span(ROWS, [TALK[0], *TALK[2:]]) is None


def test_a_result_made_up_for_the_request_has_no_row() -> None:
    sent = pair_calls(TALK[:4])
    assert sent[-1].content == INTERRUPTED
    assert sent_span(ROWS[:5], sent) == (1, 5)


def test_what_another_agent_did_is_found_in_its_retelling() -> None:
    retold = [
        TALK[0],
        Message("user", "For context:\n[root] said: hi"),
        TALK[2],
        Message("user", "For context:\n[root] called tool `look`"),
        Message("user", "For context:\n[root] `look` tool returned result: {}"),
    ]
    assert sent_span(ROWS, retold) == (1, 6)
    assert sent_span(ROWS, [*retold[:4], Message("user", "[other] said: hi")]) is None
