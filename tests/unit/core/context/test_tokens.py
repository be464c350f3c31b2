"""The token estimate: 4 + ceil(weight / 32), every weight of its table written out."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.core.context.tokens import (
    PER_MESSAGE,
    binary_tokens,
    estimate_tokens,
    message_tokens,
    text_weight,
    tokens_of_weight,
)
from lango.core.messages.messages import Message, ToolCall

OTHER_ASCII = [
    chr(code)
    for code in range(0x80)
    if chr(code) not in string.ascii_letters + string.digits + " \t\n\v\f\r"
]
anything = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("characters", "weight"),
    [
        (string.ascii_lowercase, 12),
        (string.ascii_uppercase, 28),
        (string.digits, 54),
        (" ", 2),
        ("\t\n\v\f\r", 28),
        (OTHER_ASCII, 17),
        ("\x80\xe9ß\u03b1\u0434\u05e9\u0645\u07ff", 47),  # two bytes, lead C2 to DF
        ("\u0800\u0905\u0e01\u1fff", 73),  # lead E0, E1
        ("\u2000\u2014\u20ac\u2fff", 73),  # lead E2
        ("\u3000\u3042\u30ab\u4e2d\u6587\uac00\ud7ff", 50),  # lead E3 to ED
        ("\ud800\udfff", 50),  # lone surrogates, as UTF-8 would write them
        ("\ue000\ufb01\ufffd\uffff", 73),  # lead EE, EF
        ("\U00010000\U0001f600\U0010ffff", 95),  # four bytes
    ],
    ids=lambda value: None if not isinstance(value, int) else str(value),
)
def test_weights(characters: str, weight: int) -> None:
    assert {character: text_weight(character) for character in characters} == dict.fromkeys(
        characters, weight
    )


def test_other_ascii_is_all_the_rest() -> None:
    assert len(OTHER_ASCII) == 128 - 26 - 26 - 10 - 1 - 5


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 4),
        ("a", 5),  # 12/32
        ("aa", 5),  # 24/32
        ("aaa", 6),  # 36/32
        ("a" * 8, 7),  # 96/32, exactly 3
        ("a" * 8 + " ", 8),  # 98/32
        ("Hello, world!", 10),  # (28 + 9 * 12 + 2 * 17 + 2)/32
        ("2026", 11),  # 216/32
        ("天気", 8),  # 100/32
        ("😀", 7),  # 95/32
        ("a" * 2656, 1000),
    ],
)
def test_estimates(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(anything, anything)
def test_weights_add_up(first: str, second: str) -> None:
    assert text_weight(first + second) == text_weight(first) + text_weight(second)


@given(st.sampled_from("aA0 \U0001f600"), st.integers(0, 3_000))
def test_long_texts_weigh_what_their_characters_do(character: str, length: int) -> None:
    assert text_weight(character * length) == length * text_weight(character)


@given(anything, anything)
def test_more_text_never_costs_less(text: str, more: str) -> None:
    assert estimate_tokens(text) <= estimate_tokens(text + more)
    assert estimate_tokens(text) <= estimate_tokens(more + text)


@given(anything, anything)
def test_two_messages_cost_at_least_as_much_as_one(first: str, second: str) -> None:
    together = estimate_tokens(first + second)
    apart = estimate_tokens(first) + estimate_tokens(second)
    assert together <= apart <= together + PER_MESSAGE + 1


@given(st.integers(0, 10**9))
def test_weights_are_rounded_up(weight: int) -> None:
    estimate = tokens_of_weight(weight) - PER_MESSAGE
    assert estimate * 32 - 31 <= weight <= estimate * 32


def test_a_plain_message_costs_its_text() -> None:
    assert message_tokens(Message("user", "a" * 8)) == 7
    assert message_tokens(Message("user")) == 4


def test_a_call_costs_its_name_and_input() -> None:
    call = ToolCall("an id costs nothing", "exec", input='{"cmd":"ls"}')
    weight = 4 * 12 + (5 * 12 + 7 * 17)  # exec; cmdls and {"":""}
    assert message_tokens(Message("assistant", "aaaa", (call,))) == 4 + -(-(48 + weight) // 32)


def test_what_a_tool_returned_counts_once() -> None:
    output = '{"output":"file.txt"}'
    call = ToolCall("1", "exec", output=output)
    with_copy = Message("tool", output, (call,))
    without = Message("tool", "", (call,))
    assert message_tokens(with_copy) == message_tokens(without) == estimate_tokens("exec" + output)


def test_a_tool_message_of_an_older_system_costs_its_text() -> None:
    assert message_tokens(Message("function", "a" * 8)) == 7


@pytest.mark.parametrize(
    ("mime_type", "data", "tokens"),
    [
        ("image/png", b"\x89PNG", 1_600),
        ("image/jpeg", b"\xff" * 5_000_000, 1_600),  # by its kind, not by its bytes
        ("video/mp4", None, 1_600),
        ("application/octet-stream", b"?", 1_600),
        (None, None, 1_600),
        ("application/pdf", None, 1_500),
        ("application/pdf", b"<< /Type /Page >> << /Type /Page >> <</Type/Page>>", 4_500),
        ("audio/ogg", b"", 32),
        ("audio/ogg", b"\x00" * 40_000, 11 * 32),
        ("text/plain", b"a" * 8, 7),
        ("text/csv", None, 4),
        ("application/json", b"a" * 8, 7),  # which models get as text
    ],
)
def test_binary_data(mime_type: str | None, data: bytes | None, tokens: int) -> None:
    assert binary_tokens(mime_type, data) == tokens


def test_the_catalogue_of_a_pdf_is_no_page() -> None:
    pages = b"<< /Type /Pages /Count 2 >> << /Type /Page >> << /Type /Page >>"
    assert binary_tokens("application/pdf", pages) == 3_000


@given(st.none() | st.text(), st.none() | st.binary())
def test_any_data_has_an_estimate(mime_type: str | None, data: bytes | None) -> None:
    assert binary_tokens(mime_type, data) >= PER_MESSAGE
