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
from lango.providers.registry import gateway_of
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
    model_request = ask(
        tools=(),
        temperature=0.0,
        top_p=0.5,
        max_tokens=9,
        stop=("END",),
        thinking=True,
        extra={"n": 1},
    )
    assert options(model_request) == {
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
    model_request = ask(thinking=True, extra={"extra_body": {"top_k": 5}})
    body = encode_request(model_request, quirks=quirks)
    assert body["extra_body"] == {"think": True, "top_k": 5}


@pytest.mark.parametrize(
    ("choice", "allowed", "expected", "declared"),
    [
        ("auto", (), None, 2),
        ("none", (), "none", 2),
        ("required", (), "required", 2),
        ("required", ("add",), {"type": "function", "function": {"name": "add"}}, 1),
        ("required", ("add", "now"), "required", 2),
    ],
)
def test_tool_choice(choice: Any, allowed: tuple[str, ...], expected: Any, declared: int) -> None:
    body = encode_request(ask(tool_choice=choice, allowed_tools=allowed))
    assert body.get("tool_choice") == expected
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
    model_request = ask(
        messages=[Message("user", "?"), Message("assistant", "!", reasoning=(thought,))]
    )
    own = encode_request(model_request, provider="deepseek", quirks=quirks)["messages"][1]
    assert own == {"role": "assistant", "content": "!", "reasoning_content": "Hm."}
    other = encode_request(model_request, provider="groq", quirks=quirks)["messages"][1]
    assert other == {"role": "assistant", "content": "!"}


@pytest.mark.parametrize("gateway", ["deepseek", "moonshot"])
def test_calls_go_back_with_the_thoughts_before_them(gateway: str) -> None:
    quirks = gateway_of(f"{gateway}:a-model")[0].quirks
    decoder = StreamDecoder(ask(messages=TALK[:2]), provider=gateway)
    chunks = (chunk({"reasoning_content": "Hm."}), chunk(calling(0, "now", "{}", "x"), "stop"))
    events = [event for each in chunks for event in decoder.feed(each)]
    made = message_of([*events, *decoder.finish()])
    foreign = TALK[2]
    body = encode_request(ask(messages=[foreign, made]), provider=gateway, quirks=quirks)
    assert [entry["reasoning_content"] for entry in body["messages"]] == ["", "Hm."]


def chunk(delta: JsonObject, finish: str | None = None, **fields: Any) -> JsonObject:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "1", "model": "m", "choices": choices, **fields}


def calling(index: Any, name: str | None, arguments: Any, call_id: str | None) -> dict[str, Any]:
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
        "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    last: JsonObject = {"choices": [], "usage": usage, "model": "gpt-5-2025"}
    done = done_of(decode(chunk({"content": "Hi"}, "stop"), last))
    assert done.usage == Usage(input=9, output=5, cached=3, reasoning=2, written=4)
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


@pytest.mark.parametrize("arguments", ["null", " null ", " \n"])
def test_arguments_that_are_none(arguments: str) -> None:
    events = decode(chunk(calling(0, "now", arguments, "x"), "tool_calls"))
    assert inputs(events) == [("now", "{}")]
    with pytest.raises(BadStreamError):
        decode(chunk(calling(0, "add", arguments, "x"), "tool_calls"))


@pytest.mark.parametrize("reason", ["length", "model_length", "max_tokens", "content_filter"])
def test_a_call_cut_before_its_arguments_is_left_out(reason: str) -> None:
    assert calls_of(decode(chunk(calling(0, "now", "", "x"), reason))) == []


def test_a_call_without_arguments_in_an_answer_that_ended_oddly() -> None:
    with pytest.raises(BadStreamError):
        decode(chunk(calling(0, "now", "", "x"), "new"))


@pytest.mark.parametrize("delta", [{"content": "Hel"}, calling(0, "now", "", "x")])
def test_an_empty_finish_reason_is_none(delta: JsonObject) -> None:
    with pytest.raises(BadStreamError):
        decode(chunk(delta, ""))
    assert done_of(decode(chunk(delta, ""), chunk({}, "stop"))).finish_reason != "other"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("eos", "stop"), ("end_turn", "stop"), ("model_length", "length"), ("new", "other")],
)
def test_finish_reasons(reason: str, finish: str) -> None:
    assert done_of(decode(chunk({"content": "Hi"}, reason))).finish_reason == finish


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


def piece(index: int | None, **fields: Any) -> JsonObject:
    return {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": index, **fields}


@pytest.mark.parametrize("index", [0, None])
def test_streamed_reasoning_details_go_back_whole(index: int | None) -> None:
    secret: JsonObject = {"type": "reasoning.encrypted", "data": "x", "index": index}
    streamed = [
        [piece(index, text="Let "), piece(index, text="me\ud83d")],
        [piece(index, text="\ude00.", signature=None)],
        [piece(index, signature="Et8=")],
        [secret, secret],
        [piece(1, text="Then")],
    ]
    chunks = [chunk({"reasoning_details": details}) for details in streamed]
    message = message_of(decode(*chunks, chunk({"content": "Hi"}, "stop")))
    sent = encode_request(ask(messages=[Message("user", "?"), message]))["messages"][1]
    assert sent["reasoning_details"] == [
        piece(index, text="Let me😀.", signature="Et8="),
        secret,
        secret,
        piece(1, text="Then"),
    ]


def test_the_extra_of_a_call_that_was_cut_off_is_not_that_of_another() -> None:
    first, second = calling(0, "now", "{}", "x"), calling(1, "now", '{"z', "y")
    for number, call in enumerate((first, second)):
        call["tool_calls"][0]["extra_content"] = {"google": number}
    message = message_of(decode(chunk(first), chunk(second, "length")))
    sent = encode_request(ask(messages=[Message("user", "?"), message]))["messages"][1]
    assert [call["extra_content"] for call in sent["tool_calls"]] == [{"google": 0}]


def whole(message: JsonObject, finish: str | None = "stop", **fields: Any) -> JsonObject:
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish, **fields}]}


@pytest.mark.parametrize("fields", [{}, {"delta": None}])
def test_a_whole_message_in_place_of_deltas(fields: JsonObject) -> None:
    call = {"id": "x", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    message = {"role": "assistant", "content": "Hi", "reasoning": "Hm.", "tool_calls": [call]}
    events = decode(whole(message, **fields))
    assert (text_of(events), inputs(events)) == ("Hi", [("now", "{}")])
    assert ThoughtDelta("Hm.") in events


def test_a_message_that_repeats_the_deltas() -> None:
    events = decode(
        whole({"content": "Hel"}, None, delta={"content": "Hel"}),
        whole({"content": "Hello"}, None, delta={"content": "lo"}),
        whole({"content": "Hello"}, delta={}),
        whole({"content": "Hello"}),
    )
    assert text_of(events) == "Hello"


def test_content_in_parts() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    events = decode(
        chunk({"content": [thought]}),
        chunk({"content": [{"type": "thinking", "thinking": " So"}]}),
        chunk({"content": [{"type": "text", "text": "Yes"}, {"type": "reference"}]}),
        chunk({"content": "!"}, "stop"),
    )
    assert text_of(events) == "Yes!"
    assert [thought.text for thought in message_of(events).reasoning] == ["Hm. So"]


def test_arguments_as_an_object() -> None:
    events = decode(
        chunk(calling(0, "add", {"a": 1, "b": "é"}, "x")),
        chunk(calling(1, "add", {}, "y"), "tool_calls"),
    )
    assert inputs(events) == [("add", '{"a":1,"b":"é"}'), ("add", "{}")]


@pytest.mark.parametrize("call_id", ["", None])
def test_calls_that_neither_index_nor_id_tells_apart(call_id: str | None) -> None:
    events = decode(
        chunk(calling(0, "now", '{"zone":', call_id)),
        chunk(calling(0, "now", '"a"}', call_id)),
        chunk(calling(0, "now", '{"zone":"b"}', call_id)),
        chunk(calling(0, "add", "{}", call_id), "tool_calls"),
    )
    assert inputs(events) == [("now", '{"zone":"a"}'), ("now", '{"zone":"b"}'), ("add", "{}")]


@pytest.mark.parametrize("call_id", ["x", ""])
def test_a_call_that_is_sent_twice_is_not_run_twice(call_id: str) -> None:
    sent = chunk(calling(0, "now", '{"zone":"a"}', call_id))
    with pytest.raises(BadStreamError):
        decode(sent, sent, chunk({}, "tool_calls"))


@pytest.mark.parametrize("index", ["0", 0, None])
def test_an_answer_whose_index_is_text(index: Any) -> None:
    def choice(number: Any, text: str) -> JsonObject:
        return {"index": number, "delta": {"content": text}, "finish_reason": "stop"}

    events = decode({"choices": [choice(index, "Hi"), choice("1", "another answer")]})
    assert text_of(events) == "Hi"


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (  # xAI: the total holds the reasoning, and the completion does not
            {"total_tokens": 135, "completion_tokens_details": {"reasoning_tokens": 94}},
            Usage(input=32, output=103, reasoning=94),
        ),
        (
            {"total_tokens": 41, "completion_tokens_details": {"reasoning_tokens": 4}},
            Usage(input=32, output=9, reasoning=4),
        ),
        ({"prompt_cache_hit_tokens": 7}, Usage(input=32, output=9, cached=7)),  # DeepSeek
        ({"cached_tokens": 7}, Usage(input=32, output=9, cached=7)),  # Moonshot
        (
            {"cached_tokens": 7, "prompt_tokens_details": {"cached_tokens": 7}},
            Usage(input=32, output=9, cached=7),
        ),
    ],
)
def test_usage_of_other_servers(reported: JsonObject, usage: Usage) -> None:
    counted = {"prompt_tokens": 32, "completion_tokens": 9, **reported}
    assert done_of(decode(chunk({}, "stop", usage=counted))).usage == usage
    in_the_choice = {"delta": {}, "finish_reason": "stop", "usage": counted}
    assert done_of(decode({"choices": [in_the_choice]})).usage == usage
    assert done_of(decode(chunk({}, "stop", usage=counted), chunk({}, usage={}))).usage == usage


@pytest.mark.parametrize("role", ["user", "system"])
def test_a_message_right_after_a_result(role: str) -> None:
    talk = [*TALK[:4], Message("tool", "{}", (ToolCall("call_2", "now", output="{}"),))]
    model_request = ask(messages=[*talk, Message(role, "And?")])
    roles = [entry["role"] for entry in encode_request(model_request)["messages"]]
    assert roles[-3:] == ["tool", "tool", role]
    strict = encode_request(model_request, quirks=Quirks(answer_after_tool=True))["messages"]
    assert [entry["role"] for entry in strict[-4:]] == ["tool", "tool", "assistant", role]


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
