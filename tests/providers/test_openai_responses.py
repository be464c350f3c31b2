"""OpenAI's Responses: what is sent, and what is made of what comes."""

import base64
from typing import Any

import pytest

from lango.core.messages.messages import Media, Message, Reasoning
from lango.core.messages.streams import StreamEvent, Usage
from lango.core.values import JsonObject
from lango.errors import BadStreamError, ModelUnavailableError, RateLimitedError
from lango.providers.openai_responses import StreamDecoder, encode_request
from tests.providers.conversation import (
    PIXEL,
    SCHEMA,
    ask,
    calls_of,
    done_of,
    message_of,
    text_of,
)

DOT = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
IMAGE_PART = {"type": "input_image", "image_url": DOT, "detail": "auto"}


def test_a_whole_conversation_is_encoded() -> None:
    body = encode_request(ask("gpt-5"))
    tools = body.pop("tools")
    assert [(tool["name"], tool["strict"]) for tool in tools] == [("add", False), ("now", False)]
    assert body == {
        "model": "gpt-5",
        "stream": True,
        "store": False,
        "instructions": "Be brief.",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is this, and what is two and three?"},
                    IMAGE_PART,
                ],
            },
            {"type": "message", "role": "assistant", "content": "A dot. Let me add."},
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "add",
                "arguments": '{"a": 2, "b": 3}',
            },
            {"type": "function_call", "call_id": "call_2", "name": "now", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": '{"sum":5}'},
            {
                "type": "function_call_output",
                "call_id": "call_2",
                "output": [{"type": "input_text", "text": '{"time":"noon"}'}, IMAGE_PART],
            },
        ],
    }


def test_every_option_is_encoded() -> None:
    body = encode_request(
        ask(
            tools=(),
            temperature=0.0,
            top_p=0.5,
            max_tokens=9,
            thinking=True,
            output_schema=SCHEMA,
            extra={"user": "me"},
        )
    )
    del body["input"], body["instructions"]
    assert body == {
        "model": "a-model",
        "stream": True,
        "store": False,
        "temperature": 0.0,
        "top_p": 0.5,
        "max_output_tokens": 9,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "text": {
            "format": {
                "type": "json_schema",
                "name": "answer",
                "schema": {**SCHEMA, "additionalProperties": False},
                "strict": True,
            }
        },
        "user": "me",
    }


@pytest.mark.parametrize(
    ("choice", "allowed", "expected"),
    [
        ("auto", (), None),
        ("none", (), "none"),
        ("required", (), "required"),
        ("required", ("add",), {"type": "function", "name": "add"}),
        (
            "required",
            ("add", "now"),
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "add"}, {"type": "function", "name": "now"}],
            },
        ),
    ],
)
def test_tool_choice(choice: Any, allowed: tuple[str, ...], expected: Any) -> None:
    body = encode_request(ask(tool_choice=choice, allowed_tools=allowed))
    assert body.get("tool_choice") == expected


@pytest.mark.parametrize(
    ("media", "part"),
    [
        (
            Media("application/pdf", b"pdf", name="a.pdf"),
            {
                "type": "input_file",
                "filename": "a.pdf",
                "file_data": "data:application/pdf;base64,cGRm",
            },
        ),
        (
            Media("application/pdf", uri="https://example.org/a.pdf"),
            {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        ),
        (Media("text/plain", b"hello"), {"type": "input_text", "text": "hello"}),
        (
            Media("audio/wav", b"sound", name="a.wav"),
            {"type": "input_text", "text": "[a.wav (audio/wav) cannot be shown to this model]"},
        ),
    ],
)
def test_media(media: Media, part: JsonObject) -> None:
    (item,) = encode_request(ask(messages=[Message("user", media=(media,))]))["input"]
    assert item["content"] == [part]


def event(kind: str, **fields: Any) -> JsonObject:
    return {"type": kind, "sequence_number": 0, "output_index": 0, **fields}


def delta(text: str) -> JsonObject:
    return event("response.output_text.delta", item_id="m", content_index=0, delta=text)


def item_done(**item: Any) -> JsonObject:
    return event("response.output_item.done", item=item)


def ended(status: str = "completed", **fields: Any) -> JsonObject:
    response: JsonObject = {
        "id": "r",
        "model": "gpt-5-2025",
        "status": status,
        "output": [],
        **fields,
    }
    return event(f"response.{status}", response=response)


def decode(*events: JsonObject, **asked: Any) -> list[StreamEvent]:
    decoder = StreamDecoder(ask("gpt-5", **asked))
    fed = [one for each in events for one in decoder.feed(each)]
    return [*fed, *decoder.finish()]


def test_usage_and_model_are_reported() -> None:
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 14,
    }
    done = done_of(decode(delta("Hi"), ended(usage=usage)))
    assert done.usage == Usage(input=9, output=5, cached=3, reasoning=2, written=4)
    assert (done.model, done.finish_reason) == ("gpt-5-2025", "stop")


def test_text_without_deltas_is_not_lost_and_with_them_not_doubled() -> None:
    whole = event("response.output_text.done", item_id="m", content_index=0, text="Hello")
    assert text_of(decode(whole, ended())) == "Hello"
    assert text_of(decode(delta("Hel"), delta("lo"), whole, ended())) == "Hello"


def test_text_is_not_doubled_when_every_event_has_another_item_id() -> None:
    whole = event("response.output_text.done", item_id="n", content_index=0, text="Hello")
    part = {"type": "output_text", "text": "Hello"}
    item = item_done(id="o", type="message", content=[part])
    assert text_of(decode(delta("Hel"), {**delta("lo"), "item_id": "p"}, whole, item, ended())) == (
        "Hello"
    )


def test_two_messages_are_two() -> None:
    first, second = ({**delta(text), "output_index": n} for n, text in enumerate(("A", "B")))
    second["item_id"] = "m2"
    done = {**second, "type": "response.output_text.done", "text": "B"}
    assert text_of(decode(first, second, done, ended())) == "AB"


PARTS: list[JsonObject] = [
    {"type": "output_text", "text": "Hello"},
    {"type": "refusal", "refusal": ", no."},
]


def test_a_refusal_without_deltas_is_not_lost() -> None:
    refusal = event("response.refusal.done", item_id="m", content_index=1, refusal=", no.")
    item = item_done(id="m", type="message", content=PARTS)
    assert text_of(decode(delta("Hello"), refusal, item, ended())) == "Hello, no."


def test_an_item_without_deltas_is_not_lost() -> None:
    item = item_done(id="m", type="message", content=PARTS)
    assert text_of(decode(item, ended())) == "Hello, no."


def test_a_response_that_comes_all_at_once() -> None:
    call = {"type": "function_call", "call_id": "x", "name": "now", "arguments": "{}"}
    message = {"id": "m", "type": "message", "content": PARTS}
    events = decode(ended(output=[message, call]))
    assert text_of(events) == "Hello, no."
    assert [(call.id, call.name) for call in calls_of(events)] == [("x", "now")]
    events = decode(delta("Hello, no."), item_done(**call), ended(output=[message, call]))
    assert (text_of(events), len(calls_of(events))) == ("Hello, no.", 1)


def test_a_failed_response_is_counted_too() -> None:
    counted: list[Usage] = []
    usage = {"input_tokens": 9, "output_tokens": 5}
    with pytest.raises(ModelUnavailableError):
        decode(ended("failed", usage=usage), on_usage=counted.append)
    assert counted == [Usage(input=9, output=5)]


def test_reasoning_goes_back_byte_for_byte_and_in_its_position() -> None:
    first: JsonObject = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Hm, é."}],
        "encrypted_content": "gAAAA/+é==",
    }
    second: JsonObject = {**first, "id": "rs_2", "summary": []}
    message = message_of(
        decode(
            item_done(**first),
            item_done(
                type="function_call", call_id="x", name="now", arguments="{}", status="completed"
            ),
            item_done(**second),
            item_done(
                type="function_call", call_id="y", name="now", arguments="{}", status="completed"
            ),
            ended(),
        )
    )
    items = encode_request(ask("gpt-5", messages=[message]))["input"]
    assert [item.get("id") or item.get("call_id") for item in items] == ["rs_1", "x", "rs_2", "y"]
    assert (items[0], items[2]) == (first, second)


def test_reasoning_that_the_server_would_have_to_remember_stays_here() -> None:
    item = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]}
    message = message_of(decode(item_done(**item), delta("Hi"), ended()))
    assert message.reasoning == (Reasoning("Hm", "openai", "gpt-5"),)
    assert len(encode_request(ask(messages=[message]))["input"]) == 1


def test_a_thought_that_led_to_nothing_is_not_sent() -> None:
    item: JsonObject = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "x"}
    message = message_of(decode(item_done(**item), ended()))
    assert encode_request(ask(messages=[message, Message("user", "?")]))["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "?"}]}
    ]


def test_the_phase_of_a_message_goes_back() -> None:
    done = item_done(id="m", type="message", role="assistant", content=[], phase="commentary")
    message = message_of(decode(delta("Hi"), done, ended()))
    (sent,) = encode_request(ask("gpt-5", messages=[message]))["input"]
    assert sent["phase"] == "commentary"


def test_stop_sequences_are_kept_by_the_decoder() -> None:
    events = decode(delta("One, EN"), delta("D and more"), stop=("END",))
    assert text_of(events) == "One, "
    assert done_of(events).finish_reason == "stop"
    assert text_of(decode(delta("One, EN"), ended(), stop=("END",))) == "One, EN"


def test_an_answer_cut_by_the_token_limit() -> None:
    opened = event(
        "response.output_item.added", item={"type": "function_call", "name": "add", "call_id": "x"}
    )
    cut = ended("incomplete", incomplete_details={"reason": "max_output_tokens"})
    events = decode(delta("Well"), opened, cut)
    assert (text_of(events), calls_of(events)) == ("Well", [])
    assert done_of(events).finish_reason == "length"
    with pytest.raises(BadStreamError):
        decode(opened, ended())


@pytest.mark.parametrize(
    ("code", "error"),
    [("server_error", ModelUnavailableError), ("rate_limit_exceeded", RateLimitedError)],
)
def test_failures_in_the_stream(code: str, error: type[Exception]) -> None:
    failed = ended("failed", error={"code": code, "message": "Sorry."})
    with pytest.raises(error, match="Sorry"):
        decode(delta("Hi"), failed)
    with pytest.raises(error, match="Sorry"):
        decode(delta("Hi"), event("error", code=code, message="Sorry."))
