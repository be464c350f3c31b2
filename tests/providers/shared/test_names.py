"""Ids and names as the wires allow them."""

import pytest

from lango.providers.shared.names import (
    ANTHROPIC_IDS,
    CHAT_IDS,
    NINE_LETTER_IDS,
    ApiCallIds,
    ToolNames,
    arguments_text,
)


@pytest.mark.parametrize("ids", [CHAT_IDS, ANTHROPIC_IDS, NINE_LETTER_IDS])
def test_ids_are_made_legal_the_same_way_each_time(ids: ApiCallIds) -> None:
    odd = "functions.é:0 " * 9
    assert ids(odd) == ids(odd) != ids(odd + "x")
    assert ids(ids(odd)) == ids(odd)


def test_names_of_tools_come_back() -> None:
    names = ToolNames(["a.b", "a_b", "a b", "c" * 70])
    wire = [names.wire(name) for name in ("a.b", "a_b", "a b", "c" * 70)]
    assert len(set(wire)) == 4
    assert [names.real(name) for name in wire] == ["a.b", "a_b", "a b", "c" * 70]
    assert names.wire("a_b") == "a_b"
    assert ToolNames(["3d", "-x", "_3d"]).wire("3d") == "_3d_2"  # Gemini: no digit, no dash first
    assert (names.wire("!"), names.wire(""), names.real("never")) == ("_", "unknown", "never")


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("", "{}"),
        ('{"a":  1}', '{"a":  1}'),
        ("[1]", '{"result":[1]}'),
        ("words", '{"result":"words"}'),
        ('{"a": ', '{"result":"{\\"a\\": "}'),
    ],
)
def test_arguments_of_older_systems_become_objects(given: str, sent: str) -> None:
    assert arguments_text(given) == sent
