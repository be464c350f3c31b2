"""ADK's contents as messages."""

from typing import Any

import pytest
from google.genai import types

from lango.adk.models.convert import convert_messages, system_text
from lango.core.messages.messages import Media, Message, ToolCall
from lango.core.messages.pairing import pair_calls


def content(role: str | None, *parts: types.Part) -> types.Content:
    return types.Content(role=role, parts=list(parts))


def text(words: str) -> types.Part:
    return types.Part(text=words)


def call(call_id: str | None, name: str = "look", args: dict[str, Any] | None = None) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=call_id, name=name, args=args))


def response(call_id: str | None, output: Any = None, name: str = "look") -> types.Part:
    answer = types.FunctionResponse(id=call_id, name=name, response=output)
    return types.Part(function_response=answer)


def test_roles_come_from_parts() -> None:
    """ADK gives function responses the role "user", and we give them "function"."""
    for role in ("user", "function", "tool", "model", None):
        converted = convert_messages([content("model", call("a")), content(role, response("a"))])
        assert [message.role for message in converted] == ["assistant", "tool"]


@pytest.mark.parametrize(
    ("role", "expected"),
    [("user", "user"), ("model", "assistant"), ("system", "user"), (None, "user")],
)
def test_the_role_of_text(role: str | None, expected: str) -> None:
    assert convert_messages([content(role, text("hi"))]) == [Message(expected, "hi")]


def test_texts_of_one_content_are_joined() -> None:
    assert convert_messages([content("user", text("a"), text(""), text("b"))]) == [
        Message("user", "a\nb")
    ]


@pytest.mark.parametrize("empty", [[], [types.Part(text="")], [types.Part()]])
def test_a_content_that_says_nothing_is_no_message(empty: list[types.Part]) -> None:
    assert convert_messages([types.Content(role="user", parts=empty)]) == []
    assert convert_messages([types.Content(role="user")]) == []


def test_calls_and_results_are_json() -> None:
    args = {"q": "größe", "n": [1, None]}
    called, answered = convert_messages(
        [content("model", text("wait"), call("a", args=args)), content("user", response("a", {}))]
    )
    assert called == Message(
        "assistant", "wait", (ToolCall("a", "look", input='{"q":"größe","n":[1,null]}'),)
    )
    assert answered == Message("tool", "{}", (ToolCall("a", "look", output="{}"),))


def test_every_function_response_is_a_message() -> None:
    converted = convert_messages(
        [
            content("model", call("a"), call("b")),
            content("user", response("b", {"n": 2}), response("a", {"n": 1})),
        ]
    )
    assert [message.tool_calls for message in converted[1:]] == [
        (ToolCall("b", "look", output='{"n":2}'),),
        (ToolCall("a", "look", output='{"n":1}'),),
    ]


def test_text_beside_a_response_is_a_message_of_its_own() -> None:
    converted = convert_messages([content("user", response("a", {}), text("and now?"))])
    assert [(message.role, message.content) for message in converted] == [
        ("tool", "{}"),
        ("user", "and now?"),
    ]


@pytest.mark.parametrize("missing", [None, ""])
def test_without_ids_parallel_calls_of_one_name_keep_apart(missing: str | None) -> None:
    """ADK strips its own ids, and brings the results in one content or in several."""
    calls = content("model", *(call(missing) for _ in range(3)))
    answers = [response(missing, {"n": number}) for number in range(3)]
    ids = ["call_look", "call_look_2", "call_look_3"]
    for results in ([content("user", *answers)], [content("user", one) for one in answers]):
        converted = convert_messages([calls, *results])
        assert [one.id for one in converted[0].tool_calls] == ids
        assert [m.tool_calls[0].id for m in converted[1:]] == ids
        assert [m.content for m in converted[1:]] == ['{"n":0}', '{"n":1}', '{"n":2}']


def test_a_later_turn_may_use_the_fallback_again() -> None:
    turn = [
        content("user", text("go")),
        content("model", call(None)),
        content("user", response(None, {"n": 1})),
    ]
    paired = pair_calls(convert_messages([*turn, *turn]))
    ids = [one.id for message in paired if message.is_tool for one in message.tool_calls]
    assert ids == ["call_look", "call_look_2"]


def test_images_and_files_come_along() -> None:
    image = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"1", display_name="a"))
    file = types.Part(file_data=types.FileData(mime_type="application/pdf", file_uri="gs://x"))
    [message] = convert_messages([content("user", text("see"), image, file)])
    assert message.content == "see"
    assert message.media == (
        Media("image/png", b"1", name="a"),
        Media("application/pdf", uri="gs://x"),
    )
    [alone] = convert_messages([content("user", image)])
    assert (alone.content, len(alone.media)) == ("", 1)


def test_images_in_a_tools_answer_come_along() -> None:
    blob = types.FunctionResponseBlob(mime_type="image/png", data=b"1")
    answer = types.FunctionResponse(
        id="a", name="look", response={}, parts=[types.FunctionResponsePart(inline_data=blob)]
    )
    [message] = convert_messages([content("user", types.Part(function_response=answer))])
    assert message.media == (Media("image/png", b"1"),)


def test_code_and_what_came_of_it_are_text() -> None:
    code = types.Part(executable_code=types.ExecutableCode(code="print(1)", language="PYTHON"))  # pyright: ignore[reportArgumentType]
    ran = types.Part(code_execution_result=types.CodeExecutionResult(output="1"))
    [message] = convert_messages([content("model", code, ran)])
    assert message == Message("assistant", "```\nprint(1)\n```\n```\n1\n```")


def test_what_no_wire_can_carry_is_replaced() -> None:
    [message, called] = convert_messages(
        [content("user", text("a\ud800b\x00")), content("model", call("a", args={"x": "\udfff"}))]
    )
    assert message.content == "a\ufffdb\ufffd"
    assert called.tool_calls[0].input == '{"x":"\ufffd"}'


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        (None, ""),
        ("", ""),
        ("be brief", "be brief"),
        (types.Content(parts=[text("a"), text("b")]), "a\nb"),
        ([text("a"), "b", types.Content(parts=[text("c")])], "a\nb\nc"),
        (text("a"), "a"),
        ({"parts": [{"text": "a"}, {"text": "b"}]}, "a\nb"),
        ({"text": "a"}, "a"),
        (types.Content(parts=[types.Part(inline_data=types.Blob(data=b"1"))]), ""),
        (types.Content(), ""),
    ],
)
def test_every_form_of_an_instruction(instruction: object, expected: str) -> None:
    assert system_text(instruction) == expected
    leading = [Message("system", expected)] if expected else []
    assert convert_messages([content("user", text("hi"))], instruction) == [
        *leading,
        Message("user", "hi"),
    ]
