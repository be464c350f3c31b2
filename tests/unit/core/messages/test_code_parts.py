"""Code and its output among the parts of a message."""

import pytest

from lango.core.messages.code_parts import MAX_SHOWN, CodePart, code_parts, stored_code_parts
from lango.core.values import JsonObject, json_text

TEXT: JsonObject = {"text": 3}
CODE: JsonObject = {"executable_code": {"code": "print(1)", "language": "PYTHON"}}
RAN: JsonObject = {"code_execution_result": {"outcome": "OUTCOME_OK", "output": "1"}}


def test_they_keep_their_indexes() -> None:
    assert list(code_parts([TEXT, CODE, RAN])) == [
        CodePart(1, "code", "print(1)", language="python"),
        CodePart(2, "code_result", "1", outcome="ok"),
    ]


@pytest.mark.parametrize(
    "part", [{"executable_code": {}}, {"executable_code": {"language": "LANGUAGE_UNSPECIFIED"}}]
)
def test_code_without_a_language(part: JsonObject) -> None:
    assert list(code_parts([part])) == [CodePart(0, "code", "")]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("OUTCOME_FAILED", "failed"),
        ("OUTCOME_DEADLINE_EXCEEDED", "timeout"),
        ("OUTCOME_UNSPECIFIED", None),
        (None, None),
    ],
)
def test_an_outcome(outcome: str | None, expected: str | None) -> None:
    [part] = code_parts([{"code_execution_result": {"outcome": outcome, "output": None}}])
    assert (part.text, part.outcome) == ("", expected)


def test_a_long_one_is_cut() -> None:
    [part] = code_parts([{"executable_code": {"code": "x" * (MAX_SHOWN + 1)}}])
    assert (len(part.text), part.truncated) == (MAX_SHOWN, True)


@pytest.mark.parametrize("event", [None, "{}", '{"role": "executable_code"}'])
def test_a_stored_message_without_code(event: str | None) -> None:
    assert stored_code_parts(event) == []


def test_a_stored_message_with_code() -> None:
    assert stored_code_parts(json_text({"parts": [TEXT, RAN]})) == [
        CodePart(1, "code_result", "1", outcome="ok")
    ]
