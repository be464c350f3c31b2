"""OpenAI's Chat Completions: what is sent, and what is made of what comes."""

import base64
from collections.abc import Iterable
from typing import Any

import pytest

from lango.core.messages.messages import Media, Message, Reasoning, ToolCall
from lango.core.messages.streams import ReasoningDone, StreamEvent, ThoughtDelta, Usage
from lango.core.values import JsonObject
from lango.errors import BadStreamError
from lango.providers.openai_chat import Quirks, StreamDecoder, encode_request
from tests.providers.conversation import (
    IMAGE,
    PIXEL,
    SCHEMA,
    TALK,
    ask,
    calls_of,
    done_of,
    message_of,
    text_of,
)

DOT = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"


def test_a_whole_conversation_is_encoded() -> None:
    assert encode_request(ask("gpt-5")) == {
        "model": "gpt-5",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this, and what is two and three?"},
                    {"type": "image_url", "image_url": {"url": DOT}},
                ],
            },
            {
                "role": "assistant",
                "content": "A dot. Let me add.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'},
                    },
                    {
                        "id": "call_2",
                        "type": "function",
                        "function": {"name": "now", "arguments": "{}"},
                    },
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": '{"sum":5}'},
            {"role": "tool", "tool_call_id": "call_2", "content": '{"time":"noon"}'},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": DOT}}]},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "add",
                    "description": "Add two numbers.",
                    "parameters": {
                        "type": "object",
                        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                        "required": ["a", "b"],
                    },
                },
            },
            {
                "type": "function",
                "function": {
                    "name": "now",
                    "description": "Tell the time.",
                    "parameters": {"type": "object", "properties": {}},
                },
            },
        ],
    }


def options(request: Any, **named: Any) -> dict[str, Any]:
    body = encode_request(request, **named)
    return {key: body[key] for key in body.keys() - {"model", "messages", "stream"}}


def test_every_option_is_encoded() -> None:
    asked = ask(
        tools=(),
        temperature=0.0,
        top_p=0.5,
        max_tokens=9,
        stop=("END",),
        thinking=True,
        extra={"n": 1},
    )
    assert options(asked) == {
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "top_p": 0.5,
        "max_completion_tokens": 9,
        "stop": ["END"],
        "reasoning_effort": "medium",
        "n": 1,
    }


def test_what_a_server_wants_and_what_a_user_wants_go_together() -> None:
    quirks = Quirks(thinking={True: {"extra_body": {"think": True}}})
    asked = ask(thinking=True, extra={"extra_body": {"top_k": 5}})
    body = encode_request(asked, quirks=quirks)
    assert body["extra_body"] == {"think": True, "top_k": 5}


@pytest.mark.parametrize(
    ("choice", "allowed", "told", "declared"),
    [
        ("auto", (), None, 2),
        ("none", (), "none", 2),
        ("required", (), "required", 2),
        ("required", ("add",), {"type": "function", "function": {"name": "add"}}, 1),
        ("required", ("add", "now"), "required", 2),
    ],
)
def test_tool_choice(choice: Any, allowed: tuple[str, ...], told: Any, declared: int) -> None:
    body = encode_request(ask(tool_choice=choice, allowed_tools=allowed))
    assert body.get("tool_choice") == told
    assert len(body["tools"]) == declared


def test_a_schema_is_strict_when_it_can_be() -> None:
    form = encode_request(ask(output_schema=SCHEMA))["response_format"]["json_schema"]
    assert form == {
        "name": "answer",
        "schema": {**SCHEMA, "additionalProperties": False},
        "strict": True,
    }
    loose = {"type": "object", "properties": {"a": {"type": "string"}}}
    form = encode_request(ask(output_schema=loose))["response_format"]["json_schema"]
    assert form == {"name": "answer", "schema": loose, "strict": False}


def test_quirks_of_other_servers() -> None:
    quirks = Quirks(ask_for_usage=False, json_schema=False, nine_letter_ids=True)
    body = encode_request(ask(output_schema=SCHEMA, max_tokens=5), quirks=quirks)
    assert body["max_tokens"] == 5
    assert "stream_options" not in body
    assert body["response_format"] == {"type": "json_object"}
    assert '"sum"' in body["messages"][0]["content"]
    ids = [call["id"] for call in body["messages"][3]["tool_calls"]]
    assert [len(each) for each in ids] == [9, 9]
    assert [message["tool_call_id"] for message in body["messages"][4:6]] == ids


@pytest.mark.parametrize(
    ("media", "part"),
    [
        (
            Media("image/png", uri="https://example.org/dot.png"),
            {"type": "image_url", "image_url": {"url": "https://example.org/dot.png"}},
        ),
        (
            Media("audio/mpeg", b"sound"),
            {"type": "input_audio", "input_audio": {"data": "c291bmQ=", "format": "mp3"}},
        ),
        (
            Media("application/pdf", b"pdf", name="a.pdf"),
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"},
            },
        ),
        (Media("text/csv", b"a,b"), {"type": "text", "text": "a,b"}),
        (
            Media("video/mp4", uri="gs://bucket/film.mp4"),
            {
                "type": "text",
                "text": "[gs://bucket/film.mp4 (video/mp4) cannot be shown to this model]",
            },
        ),
    ],
)
def test_media(media: Media, part: dict[str, Any]) -> None:
    body = encode_request(ask(messages=[Message("user", media=(media,))]))
    assert body["messages"] == [{"role": "user", "content": [part]}]


def test_thoughts_go_back_only_where_they_came_from() -> None:
    quirks = Quirks(thoughts_back="reasoning_content")
    thought = Reasoning("Hm.", "deepseek", "r1", '{"at":0,"item":{"thoughts":"Hm."}}')
    asked = ask(messages=[Message("user", "?"), Message("assistant", "!", reasoning=(thought,))])
    own = encode_request(asked, provider="deepseek", quirks=quirks)["messages"][1]
    assert own == {"role": "assistant", "content": "!", "reasoning_content": "Hm."}
    other = encode_request(asked, provider="groq", quirks=quirks)["messages"][1]
    assert other == {"role": "assistant", "content": "!"}


def chunk(delta: JsonObject, finish: str | None = None, **fields: Any) -> JsonObject:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "1", "model": "m", "choices": choices, **fields}


def calling(index: Any, name: str | None, arguments: str, call_id: str | None) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": call_id, "function": function}]}


def decode(*chunks: JsonObject, **asked: Any) -> list[StreamEvent]:
    decoder = StreamDecoder(ask(messages=TALK[:2], **asked))
    events = [event for each in chunks for event in decoder.feed(each)]
    return [*events, *decoder.finish()]


def inputs(events: Iterable[StreamEvent]) -> list[tuple[str, str]]:
    return [(call.name, call.input) for call in calls_of(events)]


def test_usage_and_model_are_reported() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    last: JsonObject = {"choices": [], "usage": usage, "model": "gpt-5-2025"}
    done = done_of(decode(chunk({"content": "Hi"}, "stop"), last))
    assert done.usage == Usage(input=9, output=5, cached=3, reasoning=2)
    assert done.model == "gpt-5-2025"


@pytest.mark.parametrize("index", [0, None])
def test_servers_that_number_every_call_alike(index: int | None) -> None:
    events = decode(
        chunk(calling(index, "add", '{"a": 1, ', "x")),
        chunk(calling(index, None, '"b": 2}', None)),
        chunk(calling(index, "now", "{}", "y")),
        chunk({}, "tool_calls"),
    )
    assert inputs(events) == [("add", '{"a": 1, "b": 2}'), ("now", "{}")]
    assert [call.id for call in calls_of(events)] == ["x", "y"]


def test_an_index_as_text() -> None:
    events = decode(
        chunk(calling("0", "now", '{"zone":', "x")),
        chunk(calling("0", None, '"a"}', None)),
        chunk(calling("1", "now", '{"zone":"b"}', "y"), "tool_calls"),
    )
    assert inputs(events) == [("now", '{"zone":"a"}'), ("now", '{"zone":"b"}')]


@pytest.mark.parametrize("name", ["now", None])
def test_calls_without_an_index_that_come_interleaved(name: str | None) -> None:
    events = decode(
        chunk(calling(None, "now", "", "x")),
        chunk(calling(None, "now", '{"zone":', "y")),
        chunk(calling(None, name, '{"zone":"a"}', "x")),
        chunk(calling(None, name, '"b"}', "y"), "tool_calls"),
    )
    assert inputs(events) == [("now", '{"zone":"a"}'), ("now", '{"zone":"b"}')]


def test_one_id_for_two_calls_without_an_index() -> None:
    twice = [chunk(calling(None, "now", f'{{"zone":"{zone}"}}', "x")) for zone in "ab"]
    events = decode(*twice, chunk({}, "tool_calls"))
    assert inputs(events) == [("now", '{"zone":"a"}'), ("now", '{"zone":"b"}')]


def test_parallel_calls_that_come_interleaved() -> None:
    events = decode(
        chunk(calling(0, "add", '{"a":', "x")),
        chunk(calling(1, "now", "{", "y")),
        chunk(calling(0, None, "1}", "x")),
        chunk(calling(1, None, "}", "y")),
        chunk({}, "stop"),
    )
    assert inputs(events) == [("add", '{"a":1}'), ("now", "{}")]
    assert done_of(events).finish_reason == "tool_calls"


def test_an_id_of_the_history_is_not_used_again() -> None:
    decoder = StreamDecoder(ask())
    list(decoder.feed(chunk(calling(0, "now", "{}", "call_1"), "tool_calls")))
    (call,) = calls_of(decoder.finish())
    assert call.id not in {"", "call_1", "call_2"}


def test_empty_arguments_are_whole_only_for_a_tool_that_needs_none() -> None:
    events = decode(chunk(calling(0, "now", "", "x"), "tool_calls"))
    assert inputs(events) == [("now", "{}")]
    with pytest.raises(BadStreamError):
        decode(chunk(calling(0, "add", "", "x"), "tool_calls"))


def test_a_call_cut_by_the_token_limit_is_left_out() -> None:
    events = decode(chunk({"content": "Well"}), chunk(calling(0, "add", '{"a": 1', "x"), "length"))
    assert (text_of(events), calls_of(events)) == ("Well", [])
    assert done_of(events).finish_reason == "length"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thoughts_of_other_servers(field: str) -> None:
    events = decode(chunk({field: "Hm. "}), chunk({"content": "Yes", field: ""}, "stop"))
    assert events[0] == ThoughtDelta("Hm. ")
    (thought,) = message_of(events).reasoning
    assert (thought.text, thought.provider, thought.model) == ("Hm. ", "openai-chat", "a-model")


def test_reasoning_details_and_call_extras_go_back_as_they_came() -> None:
    details = [{"type": "reasoning.encrypted", "data": "é=="}]
    signed = {"google": {"thought_signature": "c2ln"}}
    call = calling(0, "now", "{}", "x")
    call["tool_calls"][0]["extra_content"] = signed
    message = message_of(decode(chunk({"reasoning_details": details}), chunk(call, "tool_calls")))
    sent = encode_request(ask(messages=[Message("user", "?"), message]))["messages"][1]
    assert sent["reasoning_details"] == details
    assert sent["tool_calls"][0]["extra_content"] == signed


def test_halves_of_a_character_are_put_together() -> None:
    events = decode(chunk({"content": "a\ud83d"}), chunk({"content": "\ude00b\ud800"}, "stop"))
    assert text_of(events) == "a😀b\ufffd"


def test_halves_of_a_character_in_arguments_and_thoughts() -> None:
    events = decode(
        chunk({"reasoning_content": "a\ud83d"}),
        chunk({"reasoning_content": "\ude00b"}),
        chunk(calling(0, "now", '{"zone":"a\ud83d', "x")),
        chunk(calling(0, None, '\ude00b\ud800"}', None), "tool_calls"),
    )
    assert inputs(events) == [("now", '{"zone":"a😀b\ufffd"}')]
    [thought] = [event.reasoning for event in events if isinstance(event, ReasoningDone)]
    assert thought.text == "a😀b"
    assert "😀" in thought.opaque


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource"])
def test_a_server_that_gives_up(reason: str) -> None:
    with pytest.raises(BadStreamError):
        decode(chunk({"content": "Hi"}, reason))


def test_names_that_the_wire_refuses() -> None:
    odd = Message("assistant", tool_calls=(ToolCall("x" * 50, "functions.add!", "{}"),))
    result = Message("tool", "{}", (ToolCall("x" * 50, "functions.add!", output="{}"),))
    _, call, answer = encode_request(ask(messages=[Message("user", "?"), odd, result]))["messages"]
    assert call["tool_calls"][0]["function"]["name"] == "functions_add_"
    assert call["tool_calls"][0]["id"] == answer["tool_call_id"]
    assert len(answer["tool_call_id"]) <= 40


def test_an_image_of_the_assistant_is_named() -> None:
    drawn = Message("assistant", "Look:", media=(IMAGE,))
    (sent,) = encode_request(ask(messages=[drawn]))["messages"]
    assert sent["content"] == "Look:\n[dot.png (image/png) cannot be shown to this model]"
