"""What ADK asks for, in no vendor's words."""

from typing import Any, Literal

import pytest
from google.genai import types
from pydantic import BaseModel

from lango.adk.models.request_config import options_of
from lango.adk.models.schemas import NO_PARAMETERS, json_schema
from lango.errors import BadRequestError
from lango.providers.base import ModelRequest


class Weather(BaseModel):
    city: str
    degrees: int | None = None


def request(**config: Any) -> ModelRequest:
    return options_of(types.GenerateContentConfig(**config)).request("m", [])


def declared(**fields: Any) -> dict[str, Any]:
    declaration = types.FunctionDeclaration(name="look", description="Looks.", **fields)
    return {"tools": [types.Tool(function_declarations=[declaration])]}


def test_nothing_asked_for_is_nothing_said() -> None:
    assert options_of(None).request("m", []) == ModelRequest("m", [])
    assert request() == ModelRequest("m", [])


def test_options_are_kept_and_zero_is_one() -> None:
    model_request = request(
        temperature=0.0, top_p=0.5, max_output_tokens=7, stop_sequences=["\n\n"], seed=1
    )
    assert (model_request.temperature, model_request.top_p, model_request.max_tokens) == (
        0.0,
        0.5,
        7,
    )
    assert model_request.stop == ("\n\n",)


def test_extra_goes_to_the_vendor() -> None:
    assert options_of(None, {"seed": 7}).request("m", []).extra == {"seed": 7}


def test_a_tool_with_a_json_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    [tool] = request(**declared(parameters_json_schema=schema)).tools
    assert (tool.name, tool.description, tool.parameters) == ("look", "Looks.", schema)


def test_a_tool_with_geminis_schema() -> None:
    schema = types.Schema(
        type=types.Type.OBJECT,
        properties={
            "agent": types.Schema(type=types.Type.STRING, enum=["a", "b"], nullable=True),
            "numbers": types.Schema(
                type=types.Type.ARRAY, items=types.Schema(type=types.Type.INTEGER), max_items=3
            ),
            "any": types.Schema(
                any_of=[types.Schema(type=types.Type.STRING), types.Schema(type=types.Type.NUMBER)],
                nullable=True,
                example="x",
            ),
        },
        required=["agent"],
        property_ordering=["agent", "numbers"],
    )
    [tool] = request(**declared(parameters=schema)).tools
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "agent": {"type": ["string", "null"], "enum": ["a", "b", None]},
            "numbers": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
            "any": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]},
        },
        "required": ["agent"],
    }


def test_a_tool_without_parameters() -> None:
    [tool] = request(**declared()).tools
    assert tool.parameters == NO_PARAMETERS


@pytest.mark.parametrize("tool", [types.Tool(google_search=types.GoogleSearch()), print])
def test_a_tool_that_is_no_function_is_refused(tool: Any) -> None:
    with pytest.raises(BadRequestError, match="tool"):
        request(tools=[tool])


@pytest.mark.parametrize(
    ("mode", "names", "choice", "allowed"),
    [
        ("AUTO", None, "auto", ()),
        ("ANY", None, "required", ()),
        ("ANY", ["look"], "required", ("look",)),
        ("NONE", None, "none", ()),
        ("VALIDATED", ["look"], "auto", ()),
    ],
)
def test_tool_choice(
    mode: Any, names: list[str] | None, choice: str, allowed: tuple[str, ...]
) -> None:
    calling = types.FunctionCallingConfig(mode=mode, allowed_function_names=names)
    model_request = request(tool_config=types.ToolConfig(function_calling_config=calling))
    assert (model_request.tool_choice, model_request.allowed_tools) == (choice, allowed)


@pytest.mark.parametrize(
    "schema",
    [
        Weather,
        types.Schema(type=types.Type.OBJECT, properties={}),
        {"type": "OBJECT", "properties": {}},
        {"type": "object", "properties": {}},
        list[Weather],
        list[str],
        dict[str, int],
    ],
)
def test_every_form_of_an_output_schema(schema: Any) -> None:
    model_request = request(response_schema=schema, response_mime_type="application/json")
    assert model_request.output_schema is not None
    assert model_request.output_schema["type"] in ("object", "array")


def test_a_json_schema_for_the_output_wins() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert request(response_json_schema=schema).output_schema == schema
    assert request(response_mime_type="application/json").output_schema == {"type": "object"}
    assert request(response_mime_type="text/plain").output_schema is None


def test_a_pydantic_class_keeps_its_fields() -> None:
    schema = json_schema(Weather)
    assert schema["required"] == ["city"]
    assert json_schema(Literal["a", "b"])["enum"] == ["a", "b"]


@pytest.mark.parametrize(
    ("config", "thinking"),
    [
        ({"include_thoughts": True}, True),
        ({"thinking_budget": 0}, False),
        ({"thinking_budget": 0, "include_thoughts": True}, False),
        ({"thinking_budget": -1}, True),
        ({"thinking_level": "HIGH"}, True),
        ({}, None),
        ({"include_thoughts": False}, None),
    ],
)
def test_thinking(config: dict[str, Any], thinking: bool | None) -> None:
    assert request(thinking_config=types.ThinkingConfig(**config)).thinking is thinking
