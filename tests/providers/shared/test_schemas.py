"""JSON Schemas as the wires want them."""

from datetime import date
from typing import Annotated, Literal

import pytest
from pydantic import AnyUrl, BaseModel, Field

from lango.core.values import JsonObject
from lango.providers.shared.schemas import closed, is_open, is_strict, plain, tool_parameters

NESTED: JsonObject = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/A"}, "l": {"type": "array", "items": {"type": "string"}}},
    "required": ["a", "l"],
    "$defs": {"A": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
}


def test_schemas() -> None:
    shut = closed(NESTED)
    assert shut["$defs"]["A"]["additionalProperties"] is False
    assert "additionalProperties" not in NESTED["$defs"]["A"]
    assert (is_strict(NESTED), is_strict(shut), is_open(shut)) == (False, True, False)
    assert is_open({"type": "object"})
    assert is_open({"type": "array", "items": {"type": "object", "additionalProperties": {}}})
    assert not is_strict({"type": "object"})


class Inner(BaseModel):
    a: int


class Described(BaseModel):
    inner: Inner = Field(description="A model with a description of its own.")


class Kind(BaseModel):
    kind: Literal["kind"]


class Other(BaseModel):
    kind: Literal["other"]


class Either(BaseModel):
    either: Annotated[Kind | Other, Field(discriminator="kind")]


class Pair(BaseModel):
    pair: tuple[int, str]


class Address(BaseModel):
    address: AnyUrl


class Optional(BaseModel):
    inner: Inner | None
    day: date


@pytest.mark.parametrize(
    ("model", "strict"),
    [(Described, False), (Either, False), (Pair, False), (Address, False), (Optional, True)],
)
def test_keywords_that_strict_mode_refuses(model: type[BaseModel], strict: bool) -> None:
    assert is_strict(closed(model.model_json_schema())) is strict


def test_schemas_in_other_forms() -> None:
    assert tool_parameters({}) == {"type": "object", "properties": {}}
    result = plain({"oneOf": [{"type": "string", "pattern": "a+"}], "default": "a"})
    assert result == {"anyOf": [{"type": "string", "description": '{"pattern":"a+"}'}]}
