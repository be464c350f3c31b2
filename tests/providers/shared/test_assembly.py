"""Which tool calls are whole."""

import pytest

from lango.providers.shared.assembly import problem_of_arguments


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@pytest.mark.parametrize(
    "arguments",
    ["", "{", "[1]", "null", '"a"', '{"a": NaN}', *map(nested, (65, 3_000))],
)
def test_arguments_that_are_not_whole(arguments: str) -> None:
    assert problem_of_arguments(arguments)


@pytest.mark.parametrize("arguments", ["{}", '{"a": [1, {"b": null}]}', nested(64)])
def test_arguments_that_are_whole(arguments: str) -> None:
    assert problem_of_arguments(arguments) == ""
