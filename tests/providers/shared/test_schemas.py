"""JSON Schemas as the wires want them."""

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
    assert tool_parameters({}) == {"type": "object", "properties": {}}
    told = plain({"oneOf": [{"type": "string", "pattern": "a+"}], "default": "a"})
    assert told == {"anyOf": [{"type": "string", "description": '{"pattern":"a+"}'}]}
