"""A view of a call, from its record and the stored messages."""

from datetime import UTC, datetime

import pytest

from lango.core.context.budget import request_tokens
from lango.core.context.model_calls import ModelAttempt, ModelCall
from lango.core.messages.messages import Media, Message, Reasoning, ToolCall
from lango.core.messages.streams import Usage
from lango.insight.context import (
    ContextCut,
    Prompt,
    StoredTalk,
    cut_of,
    newest_of,
    other_calls,
    prompt_sections,
    view,
)

ATTEMPT = ModelAttempt("scripted", "demo", started=10.0, ended=12.5, first_byte=11.0)


def stored(number: int, *messages: Message, turn: str = "t1", author: str = "user") -> StoredTalk:
    return StoredTalk(number, turn, messages[0].role, author, messages)


def result(call_id: str, output: str = "{}") -> Message:
    return Message("tool", output, (ToolCall(call_id, "look", output=output),))


ASKED = stored(1, Message("user", "go"))
CALLED = stored(
    2,
    Message("assistant", "", (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))),
    author="root",
)
ANSWERED = stored(3, result("a"), result("b"), author="root")


def test_the_facts_of_the_record() -> None:
    usage = Usage(input=90, output=5)
    failed = ModelCall(
        ModelAttempt("scripted", "demo", 1.0, 2.0, outcome="failed", error="E"), 1, "mc"
    )
    made = ModelAttempt("scripted", "demo", 10.0, 12.5, 11.0, request_id="r", usage=usage)
    done = ModelCall(made, 2, "mc", turn="t1", agent="root", budget=99, estimated=100, price=0.5)
    seen = view([failed, done], Prompt(), [], [])
    assert (seen.call, seen.turn, seen.agent, seen.budget) == ("mc", "t1", "root", 99)
    assert [(one.number, one.outcome, one.error) for one in seen.attempts] == [
        (1, "failed", "E"),
        (2, "completed", ""),
    ]
    assert seen.attempt is seen.attempts[-1]
    assert seen.attempt.started == datetime.fromtimestamp(10, UTC)
    assert (seen.attempt.usage, seen.attempt.cost, seen.attempt.estimated) == (usage, 0.5, 100)


def test_a_budget_that_was_not_recorded_is_none() -> None:
    assert view([ModelCall(ATTEMPT, 1)], Prompt(), [], []).budget is None


@pytest.mark.parametrize(
    ("first", "sent", "known"),
    [(1, 4, "exact"), (1, 3, "ends"), (1, 9, "ends"), (None, 4, "unknown")],
)
def test_what_is_known_of_the_messages(first: int | None, sent: int, known: str) -> None:
    call = ModelCall(ATTEMPT, 1, sent=sent, first_seq=first, last_seq=3)
    talk = [ASKED, CALLED, ANSWERED] if first else []
    assert view([call], Prompt(), talk, []).messages_known == known


def test_an_answer_that_was_stood_in_for_is_a_message_too() -> None:
    call = ModelCall(ATTEMPT, 1, sent=4, first_seq=1, last_seq=2)
    assert view([call], Prompt(), [ASKED, CALLED], []).messages_known == "exact"


def test_the_rest_is_what_no_section_has() -> None:
    call = ModelCall(ATTEMPT, 1, estimated=100, shortened=("b",), sent=4, first_seq=1, last_seq=3)
    seen = view([call], Prompt("Be brief."), [ASKED, CALLED, ANSWERED], [])
    system, sections, called, answered = seen.sections
    assert (answered.shortened, answered.tokens) == (True, None)
    assert not called.shortened
    known = [system.tokens, sections.tokens, called.tokens]
    assert seen.rest == 100 - sum(one or 0 for one in known)


def test_turn_and_history_and_the_words_of_others() -> None:
    before = stored(1, Message("assistant", "hm"), turn="t0", author="other")
    call = ModelCall(ATTEMPT, 1, turn="t1", agent="root", sent=2, first_seq=1, last_seq=2)
    seen = view([call], Prompt(), [before, ASKED], [])
    assert [(one.kind, one.retold) for one in seen.sections] == [
        ("history", True),
        ("turn", False),
    ]
    unnamed = view([ModelCall(ATTEMPT, 1)], Prompt(), [stored(1, Message("user"), turn="")], [])
    assert [(one.kind, one.retold) for one in unnamed.sections] == [("history", False)]


def test_all_that_a_message_shows() -> None:
    message = Message(
        "assistant",
        "said",
        (ToolCall("a", "look", '{"n":1}'),),
        media=(Media("image/png", b"x"),),
        reasoning=(Reasoning("thought"),),
    )
    (section,) = view([ModelCall(ATTEMPT, 1)], Prompt(), [stored(1, message)], []).sections
    assert section.text == 'thought\nsaid\nlook {"n":1}\n[image/png]'
    assert section.tokens == request_tokens(message)
    assert section.tools == ("look",)


@pytest.mark.parametrize(("room", "text"), [(None, "Be brief."), (2, "Be"), (0, "")])
def test_a_text_is_shown_as_far_as_there_is_room(room: int | None, text: str) -> None:
    (section,) = prompt_sections(Prompt("Be brief."), room)
    assert (section.text, section.characters) == (text, 9)


@pytest.mark.parametrize(
    "declared",
    [
        '[["add","Adds.",{}],["look","",{}]]',
        '[{"function_declarations":[{"name":"add"},{"name":"look"}]},{"google_search":{}}]',
    ],
    ids=["ours", "adk"],
)
def test_the_names_of_tools(declared: str) -> None:
    (section,) = prompt_sections(Prompt(tools=declared), 0)
    assert (section.kind, section.tools) == ("tools", ("add", "look"))


def test_the_newest_that_make_so_many_messages() -> None:
    talk = [ASKED, CALLED, ANSWERED]
    found = [[one.number for one in newest_of(talk, count)] for count in range(6)]
    assert found == [[], [3], [3], [2, 3], [1, 2, 3], [1, 2, 3]]


def test_a_cut_names_its_ends() -> None:
    assert cut_of([ASKED, CALLED], "window", counted=True) == ContextCut(
        1, 2, 2, ASKED.tokens + CALLED.tokens, "window", counted=True
    )


def test_other_calls_are_listed_once_and_without_the_shown_one() -> None:
    calls = [ModelCall(ATTEMPT, n, name) for name, n in (("a", 1), ("b", 1), ("b", 2), ("c", 1))]
    assert [one.call for one in other_calls(calls, "c")] == ["b", "a"]
    assert other_calls([], "") == other_calls(calls[-1:], "c") == ()
