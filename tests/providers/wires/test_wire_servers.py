"""The scripted servers, as a user's own tests would use them: with the vendors' SDKs alone."""

from typing import Any

import anthropic
import openai
import pytest
from google import genai

from lango.testing.wires import WIRES, Broken, Call, Refusal, ScriptedAnswer, WireServer
from tests.providers.conversation import ask, done_of, error_of, say, text_of


def openai_at(server: WireServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0)


async def test_openai_chat() -> None:
    server = WireServer("openai_chat", ScriptedAnswer("Hello there."), piece=3)
    async with server, openai_at(server) as client:
        stream = await client.chat.completions.create(
            model="gpt-5", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        pieces = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
    assert "".join(piece or "" for piece in pieces) == "Hello there."


async def test_openai_responses() -> None:
    server = WireServer("openai_responses", ScriptedAnswer("Hello there."), piece=3)
    async with (
        server,
        openai_at(server) as client,
        client.responses.stream(model="gpt-5", input="hi") as stream,
    ):
        response = await stream.get_final_response()
    assert response.output_text == "Hello there."


async def test_anthropic() -> None:
    server = WireServer("anthropic", ScriptedAnswer("Hello there.", (Call("now"),)), piece=3)
    async with (
        server,
        anthropic.AsyncAnthropic(base_url=server.url, api_key="k") as client,
        client.messages.stream(
            model="claude-sonnet-4-5", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        ) as stream,
    ):
        message = await stream.get_final_message()
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert message.usage.output_tokens == 7


async def test_gemini() -> None:
    async with WireServer("gemini", ScriptedAnswer("Hello there."), piece=3) as server:
        options = genai.types.HttpOptions(base_url=server.url)
        client = genai.Client(api_key="k", http_options=options)
        models: Any = client.aio.models
        stream = await models.generate_content_stream(model="gemini-3", contents="hi")
        text = "".join([chunk.text or "" async for chunk in stream])
        await client.aio.aclose()
    assert text == "Hello there."


@pytest.mark.parametrize("wire", list(WIRES))
async def test_replies_come_in_their_order_and_the_last_one_stays(wire: str) -> None:
    async with WireServer(
        wire, ScriptedAnswer("One."), Refusal("failing"), ScriptedAnswer("Two.")
    ) as server:
        provider = server.provider()
        answer = [await say(provider, ask("gemini-3", tools=())) for _ in range(4)]
    assert [text_of(events) for events in answer] == ["One.", "", "Two.", "Two."]
    assert error_of(answer[1]).status == 500
    assert error_of(answer[1]).request_id in {"req_2", ""}  # Google gives none with an error
    assert done_of(answer[0]).request_id


@pytest.mark.parametrize("wire", list(WIRES))
async def test_a_server_that_stalls_can_be_closed(wire: str) -> None:
    async with WireServer(wire, Broken("stall")) as server:
        stream = server.provider().stream(ask("gemini-3"))
        await anext(stream)
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def test_other_paths_are_not_there() -> None:
    server = WireServer("openai_chat")
    async with server, openai_at(server) as client:
        with pytest.raises(openai.NotFoundError):
            await client.models.list()
