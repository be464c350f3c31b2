"""Gemini: what is sent, and what is made of what comes."""

from typing import Any

import httpx
import pytest
from google.genai import Client
from google.genai.types import GenerateContentConfig, GenerateContentResponse, HttpOptions

from lango.adk.models.responses import ReceivedAnswer
from lango.core.messages.messages import Media, Message, ToolCall
from lango.core.messages.streams import StreamEvent, ThoughtDelta, Usage
from lango.core.values import JsonObject
from lango.errors import BadStreamError, RateLimitedError
from lango.providers.gemini import UNSIGNED, GeminiProvider, StreamDecoder, encode_request
from lango.providers.shared.alternating import EARLIER, GO_ON
from lango.testing.wires import Refusal, WireServer
from tests.providers.conversation import (
    PIXEL,
    SCHEMA,
    TALK,
    ask,
    calls_of,
    done_of,
    error_of,
    message_of,
    say,
    text_of,
)

DOT = {"inline_data": {"mime_type": "image/png", "data": PIXEL}}


def test_a_whole_conversation_is_encoded() -> None:
    body = encode_request(ask("gemini-2.5-pro"))
    declared = body["config"].pop("tools")[0]["function_declarations"]
    assert [each["name"] for each in declared] == ["add", "now"]
    assert body == {
        "model": "gemini-2.5-pro",
        "contents": [
            {"role": "user", "parts": [{"text": "What is this, and what is two and three?"}, DOT]},
            {
                "role": "model",
                "parts": [
                    {"text": "A dot. Let me add."},
                    {"function_call": {"id": "call_1", "name": "add", "args": {"a": 2, "b": 3}}},
                    {"function_call": {"id": "call_2", "name": "now", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "function_response": {
                            "id": "call_1",
                            "name": "add",
                            "response": {"sum": 5},
                        }
                    },
                    {
                        "function_response": {
                            "id": "call_2",
                            "name": "now",
                            "response": {"time": "noon"},
                        }
                    },
                    DOT,
                ],
            },
        ],
        "config": {
            "automatic_function_calling": {"disable": True},
            "system_instruction": "Be brief.",
        },
    }


def test_every_option_is_encoded_and_known_to_the_sdk() -> None:
    config = encode_request(
        ask(
            tools=(),
            temperature=0.0,
            top_p=0.5,
            max_tokens=9,
            stop=("END",),
            thinking=True,
            output_schema=SCHEMA,
            extra={"seed": 1},
        )
    )["config"]
    assert config == {
        "automatic_function_calling": {"disable": True},
        "system_instruction": "Be brief.",
        "temperature": 0.0,
        "top_p": 0.5,
        "max_output_tokens": 9,
        "stop_sequences": ["END"],
        "thinking_config": {"include_thoughts": True},
        "response_mime_type": "application/json",
        "response_json_schema": SCHEMA,
        "seed": 1,
    }
    GenerateContentConfig.model_validate(config)


@pytest.mark.parametrize(
    ("model", "expected"),
    [("gemini-2.5-flash", {"thinking_budget": 0}), ("gemini-3-pro", {"thinking_level": "LOW"})],
)
def test_thinking_switched_off(model: str, expected: JsonObject) -> None:
    config = encode_request(ask(model, thinking=False))["config"]
    assert config["thinking_config"] == expected
    GenerateContentConfig.model_validate(config)


@pytest.mark.parametrize(
    ("choice", "allowed", "expected"),
    [
        ("none", (), {"mode": "NONE"}),
        ("required", (), {"mode": "ANY"}),
        ("required", ("add",), {"mode": "ANY", "allowed_function_names": ["add"]}),
    ],
)
def test_tool_choice(choice: Any, allowed: tuple[str, ...], expected: JsonObject) -> None:
    config = encode_request(ask(tool_choice=choice, allowed_tools=allowed))["config"]
    assert config["tool_config"] == {"function_calling_config": expected}
    assert "tool_config" not in encode_request(ask())["config"]


def test_turns_are_taken() -> None:
    messages = [Message("assistant", "So."), Message("user", " "), Message("assistant", "And so.")]
    assert encode_request(ask(messages=messages))["contents"] == [
        {"role": "user", "parts": [{"text": EARLIER}]},
        {"role": "model", "parts": [{"text": "So."}, {"text": "And so."}]},
        {"role": "user", "parts": [{"text": GO_ON}]},
    ]


def test_media_may_lie_elsewhere() -> None:
    film = Media("video/mp4", uri="gs://bucket/film.mp4")
    (content,) = encode_request(ask(messages=[Message("user", media=(film,))]))["contents"]
    assert content["parts"] == [
        {"file_data": {"mime_type": "video/mp4", "file_uri": "gs://bucket/film.mp4"}}
    ]


def test_results_that_are_no_objects_become_ones() -> None:
    talk = [
        Message("user", "?"),
        Message("assistant", tool_calls=(ToolCall("x", "now", "{}"),)),
        Message("tool", "noon", (ToolCall("x", "now", output="noon"),)),
    ]
    answer = encode_request(ask(messages=talk))["contents"][2]["parts"][0]["function_response"]
    assert answer["response"] == {"result": "noon"}


def chunk(*parts: JsonObject, finish: str | None = None, **fields: Any) -> GenerateContentResponse:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": finish}
    return GenerateContentResponse.model_validate({"candidates": [candidate], **fields})


def decode(*chunks: GenerateContentResponse, model: str = "gemini-3-pro") -> list[StreamEvent]:
    decoder = StreamDecoder(ask(model, TALK[:2]))
    fed = [one for each in chunks for one in decoder.feed(each)]
    return [*fed, *decoder.finish()]


def test_usage_model_and_id_are_reported() -> None:
    usage = {
        "promptTokenCount": 9,
        "cachedContentTokenCount": 3,
        "candidatesTokenCount": 4,
        "thoughtsTokenCount": 2,
        "toolUsePromptTokenCount": 1,
    }
    last = chunk(
        {"text": "Hi"}, finish="STOP", usageMetadata=usage, modelVersion="g", responseId="r"
    )
    done = done_of(decode(last))
    assert done.usage == Usage(input=10, output=6, cached=3, reasoning=2)
    assert (done.model, done.request_id, done.finish_reason) == ("g", "r", "stop")


def signed_answer() -> Message:
    events = decode(
        chunk({"text": "Hm.", "thought": True}),
        chunk({"text": "Well."}),
        chunk({"functionCall": {"name": "now", "args": {}, "id": "x"}, "thoughtSignature": "/+8="}),
        chunk({"functionCall": {"name": "now", "id": "y"}}),
        chunk({"text": ""}, finish="STOP"),
    )
    assert events[0] == ThoughtDelta("Hm.")
    return message_of(events)


def test_signatures_go_back_byte_for_byte_to_the_model_that_made_them() -> None:
    message = signed_answer()
    contents = encode_request(ask("gemini-3-pro", [*TALK[:2], message]))["contents"]
    assert contents[1]["parts"] == [
        {"text": "Well."},
        {
            "function_call": {"id": "x", "name": "now", "args": {}},
            "thought_signature": b"\xff\xef",
        },
        {"function_call": {"id": "y", "name": "now", "args": {}}},
    ]


@pytest.mark.parametrize(("model", "signature"), [("gemini-4-x", UNSIGNED), ("gemini-2.5-x", None)])
def test_another_model_gets_no_signature_of_theirs(model: str, signature: bytes | None) -> None:
    contents = encode_request(ask(model, [*TALK[:2], signed_answer()]))["contents"]
    assert contents[1]["parts"][1].get("thought_signature") == signature
    assert "thought_signature" not in contents[1]["parts"][2]


def test_the_signature_of_a_text_goes_back() -> None:
    message = message_of(
        decode(
            chunk({"text": "Well."}), chunk({"text": "", "thoughtSignature": "/+8="}, finish="STOP")
        )
    )
    contents = encode_request(ask("gemini-3-pro", [*TALK[:2], message]))["contents"]
    assert contents[1]["parts"] == [{"text": "Well.", "thought_signature": b"\xff\xef"}]


def test_the_signature_of_a_text_is_not_that_of_the_call_before_it() -> None:
    message = message_of(
        decode(
            chunk({"functionCall": {"name": "now", "id": "x"}, "thoughtSignature": "/+8="}),
            chunk({"text": "", "thoughtSignature": "AAAA"}, finish="STOP"),
        )
    )
    parts = encode_request(ask("gemini-3-pro", [*TALK[:2], message]))["contents"][1]["parts"]
    assert parts[0] == {"text": "", "thought_signature": b"\0\0\0"}
    assert parts[1]["thought_signature"] == b"\xff\xef"


def test_a_signed_thought_is_kept_once() -> None:
    thought: JsonObject = {"text": "Hm.", "thought": True, "thoughtSignature": "/+8="}
    answer = ReceivedAnswer("gemini", "gemini-3-pro")
    for event in decode(chunk(thought), chunk({"text": "Hi"}, finish="STOP")):
        answer.take(event)
    content = answer.final().content
    assert content is not None
    assert [part.text for part in content.parts or ()] == ["Hm.", "", "Hi"]


def test_only_the_first_of_several_answers_is_read() -> None:
    def candidate(index: int, text: str) -> JsonObject:
        return {"index": index, "content": {"parts": [{"text": text}]}, "finishReason": "STOP"}

    def of(*candidates: JsonObject) -> GenerateContentResponse:
        return GenerateContentResponse.model_validate({"candidates": candidates})

    events = decode(of(candidate(1, "No"), candidate(0, "A")), of(candidate(1, "No")), chunk())
    assert text_of(events) == "A"


def test_a_call_whose_arguments_come_in_pieces_is_not_run() -> None:
    first: JsonObject = {"functionCall": {"name": "now", "willContinue": True}}
    with pytest.raises(BadStreamError):
        decode(chunk(first, finish="MAX_TOKENS"))


def test_calls_without_ids_get_some() -> None:
    one: JsonObject = {"functionCall": {"name": "now", "args": {"a": 1}}}
    first, second = calls_of(decode(chunk(one), chunk(one), chunk(finish="STOP")))
    assert first.id
    assert second.id
    assert first.id != second.id
    assert first.input == '{"a":1}'


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("MAX_TOKENS", "length"), ("SAFETY", "content_filter"), ("OTHER", "other")],
)
def test_finish_reasons(reason: str, finish: str) -> None:
    events = decode(chunk({"text": "Hi"}, finish=reason))
    assert (text_of(events), done_of(events).finish_reason) == ("Hi", finish)


def test_an_unspecified_finish_reason_is_none() -> None:
    with pytest.raises(BadStreamError):
        decode(chunk({"text": "Hel"}, finish="FINISH_REASON_UNSPECIFIED"))


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "OTHER"])
def test_a_call_without_arguments_is_complete_here(reason: str) -> None:
    events = decode(chunk({"functionCall": {"name": "now"}}, finish=reason))
    assert [call.input for call in calls_of(events)] == ["{}"]


def test_a_blocked_prompt() -> None:
    blocked = GenerateContentResponse.model_validate({"promptFeedback": {"blockReason": "SAFETY"}})
    assert done_of(decode(blocked)).finish_reason == "content_filter"


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
def test_calls_that_the_server_itself_calls_broken(reason: str) -> None:
    with pytest.raises(BadStreamError):
        decode(chunk(finish=reason))


@pytest.mark.parametrize("library", ["httpx", "whichever is installed"])
async def test_the_wait_that_is_asked_for_is_read_from_any_library(library: str) -> None:
    async with WireServer("gemini", Refusal("rate_limited", retry_after="7")) as server:
        options = HttpOptions(base_url=server.url)
        if library == "httpx":
            options.async_client_args = {"transport": httpx.AsyncHTTPTransport()}
        client = Client(api_key="key", http_options=options)
        error = error_of(await say(GeminiProvider(client=client), ask("gemini-2.5-pro")))
        await client.aio.aclose()
    assert (type(error), error.retry_after) == (RateLimitedError, 7.0)
