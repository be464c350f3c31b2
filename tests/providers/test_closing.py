"""What a model opens, it closes; what the first answer would wait for can be done before."""

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from lango.adk.models.adapter import ModelAdapter
from lango.errors import AuthenticationError
from lango.providers.anthropic import AnthropicProvider
from lango.providers.openai_chat import OpenAIChatProvider
from lango.providers.policy.retry import Fallback, Policy, PolicyProvider
from lango.providers.scripted import ScriptedProvider
from lango.testing.wires import WIRES, Refusal, ScriptedAnswer, WireServer, provider_of
from tests.providers.conversation import ask, say, text_of

HELLO = LlmRequest(contents=[types.Content(role="user", parts=[types.Part(text="hi")])])


async def hello(model: ModelAdapter) -> str:
    [answer] = [one async for one in model.generate_content_async(HELLO)]
    return "".join(part.text or "" for part in (answer.content and answer.content.parts) or [])


async def left(*servers: WireServer) -> None:
    async with asyncio.timeout(10):
        for server in servers:
            await server.left()
            assert server.connections == 0


@pytest.mark.parametrize("wire", WIRES)
async def test_closing_closes_the_connections_and_asking_opens_new_ones(wire: str) -> None:
    async with WireServer(wire, ScriptedAnswer("Hello.")) as server:
        model = ModelAdapter(provider_of(wire, server.url), "some-model")
        assert await hello(model) == "Hello."
        assert server.connections == 1
        await model.close()
        await left(server)
        await model.close()
        async with model:
            assert await hello(model) == "Hello."
            assert server.connections == 1
        await left(server)


async def test_fallbacks_are_closed_too() -> None:
    async with WireServer("openai_chat", Refusal("no_key")) as first, WireServer("gemini") as other:
        provider = PolicyProvider(
            provider_of("openai_chat", first.url),
            Policy(tries=1),
            fallbacks=[Fallback(provider_of("gemini", other.url), "gemini-2.5-pro")],
        )
        async with ModelAdapter(provider, "gpt-5") as model:
            assert await hello(model) == "Hello."
            assert first.connections == other.connections == 1
        await left(first, other)


async def test_a_client_that_was_given_is_its_owners_to_close() -> None:
    import anthropic

    async with WireServer("anthropic") as server:
        client = anthropic.AsyncAnthropic(api_key="key", base_url=server.url)
        async with ModelAdapter(AnthropicProvider(client=client), "claude-sonnet-4-5") as model:
            await hello(model)
        assert not client.is_closed()
        await client.close()


async def test_models_without_connections_close_and_warm_up_as_well() -> None:
    async with ModelAdapter(ScriptedProvider(["Hello."])) as model:
        await model.warm_up()
        assert await hello(model) == "Hello."


SCRIPT = """
import asyncio, gc, sys
from lango.testing.wires import WireServer, provider_of
from tests.providers.conversation import ask, say, text_of

async def main(wire, close):
    async with WireServer(wire) as server:
        provider = provider_of(wire, server.url)
        assert text_of(await say(provider, ask("m"))) == "Hello."
        if close:
            await provider.close()
        await asyncio.sleep(0)
    gc.collect()

asyncio.run(main(sys.argv[1], sys.argv[2] == "close"))
gc.collect()
"""


def leaks(wire: str, how: str) -> str:
    """What Python says of things that were not closed."""
    warned = ["-W", "error::ResourceWarning", "-X", "tracemalloc=1"]
    done = subprocess.run(
        [sys.executable, *warned, "-c", SCRIPT, wire, how],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("wire", WIRES)
def test_nothing_is_left_open(wire: str) -> None:
    assert leaks(wire, "close") == ""


def test_what_is_left_open_would_be_noticed() -> None:
    assert "ResourceWarning" in leaks("anthropic", "leave")


@pytest.mark.parametrize("wire", WIRES)
async def test_warming_up_makes_the_client_of_the_first_request(wire: str) -> None:
    async with WireServer(wire, ScriptedAnswer("Hello.")) as server:
        provider: Any = server.provider()
        await asyncio.gather(provider.warm_up(), provider.warm_up())
        made = provider._made.get()
        assert text_of(await say(provider, ask("m"))) == "Hello."
        await provider.warm_up()
        assert provider._made.get() is made


async def test_warming_up_does_not_hold_the_loop() -> None:
    """The import is done in another thread, and this one goes on meanwhile."""
    provider = OpenAIChatProvider(api_key="key")
    threads: set[int] = set()
    real: Any = provider._make  # pyright: ignore[reportPrivateUsage]

    def make() -> Any:
        threads.add(threading.get_ident())
        return real()

    provider._made._make = make  # pyright: ignore[reportPrivateUsage]
    await provider.warm_up()
    assert threads.isdisjoint({threading.get_ident()})
    assert len(threads) == 1
    await provider.close()


async def test_what_cannot_work_is_known_when_warming_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(AuthenticationError, match="OPENAI_API_KEY"):
        await ModelAdapter("scripted:demo", fallbacks=["openai:gpt-5"]).warm_up()
