"""Models by name."""

from typing import Any

import pytest
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from lango.adk.models.adapter import ModelAdapter
from lango.core.messages.streams import StreamEvent, Usage
from lango.errors import AuthenticationError, UnknownModelError
from lango.providers import registry
from lango.providers.policy.retry import Policy, close_provider
from lango.testing.wires import Refusal, ScriptedAnswer, WireServer
from tests.providers.conversation import ask, error_of, say, text_of


async def talk_to(name: str, base_url: str = "", **options: Any) -> list[StreamEvent]:
    """What a model of that name says."""
    if base_url:
        options["access"] = {name.partition(":")[0]: registry.Access(base_url=base_url)}
    provider, model = registry.resolve(name, **options)
    try:
        return await say(provider, ask(model))
    finally:
        await close_provider(provider)


NAMES = [gateway.name for gateway in registry.GATEWAYS]


@pytest.mark.parametrize("name", NAMES)
def test_every_row_makes_a_provider(name: str) -> None:
    provider, model = registry.resolve(f"{name}:some/model:tag")
    assert (provider.name, model) == (name, "some/model:tag")


def test_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("name", ["gpt-5", "unknown:gpt-5", "openai:", ""])
def test_names_that_name_nothing(name: str) -> None:
    with pytest.raises(UnknownModelError, match="names no"):
        registry.resolve(name)


async def test_another_servers_address_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async with WireServer("openai_chat", ScriptedAnswer("Hello.")) as server:
        assert text_of(await talk_to("vllm:m", base_url=server.url)) == "Hello."
        monkeypatch.setenv("LLAMACPP_BASE_URL", server.url)
        assert text_of(await talk_to("llamacpp:m")) == "Hello."
        assert server.refused == []


async def test_a_key_is_added_to_the_address_of_its_provider() -> None:
    async with WireServer("openai_chat", ScriptedAnswer("Hello.")) as server:
        access = {"groq": registry.Access(base_url=server.url)}
        model = ModelAdapter("groq:m", api_key="gsk-mine", access=access)
        request = LlmRequest(contents=[types.UserContent("hi")])
        async for _ in model.generate_content_async(request):
            pass
        await model.close()
        assert [each.headers["authorization"] for each in server.requests] == ["Bearer gsk-mine"]


async def test_a_key_goes_nowhere_but_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    async with WireServer("openai_chat") as server:
        error = error_of(await talk_to("groq:m", base_url=server.url))
        assert isinstance(error, AuthenticationError)
        assert "GROQ_API_KEY" in str(error)
        await talk_to("ollama:m", base_url=server.url)
        assert [request.headers["authorization"] for request in server.requests] == ["Bearer none"]


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini:gemini-3-pro", "GEMINI_API_KEY"),
    ],
)
async def test_without_a_key_the_error_names_its_variable(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    error = error_of(await talk_to(name))
    assert isinstance(error, AuthenticationError)
    assert f"set {variable}." in str(error)


async def test_fallbacks_are_names(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(tries=1)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    async with (
        WireServer("openai_chat", Refusal("overloaded")) as first,
        WireServer("anthropic", ScriptedAnswer("Hello.")) as second,
    ):
        monkeypatch.setenv("ANTHROPIC_BASE_URL", second.url)
        others = ["anthropic:claude-sonnet-4-5"]
        events = await talk_to("vllm:m", policy=policy, base_url=first.url, fallbacks=others)
        assert text_of(events) == "Hello."
        assert second.requests[0].body["model"] == "claude-sonnet-4-5"


def test_context_windows() -> None:
    assert registry.context_window("openai:gpt-5") == 400_000
    assert registry.context_window("anthropic:claude-sonnet-4-5") == 200_000
    assert registry.context_window("openai:no-such-model") is None
    assert registry.context_window("scripted:demo") is None
    assert registry.context_window("unknown:m") is None


def test_prices() -> None:
    cost = registry.price("openai:gpt-4o-mini", Usage(input=1_000_000, output=0))
    assert cost == pytest.approx(0.15)  # pyright: ignore[reportUnknownMemberType]
    cached = registry.price("openai:gpt-4o-mini", Usage(input=1_000_000, cached=1_000_000))
    assert cached is not None
    assert 0 < cached < 0.15
    assert registry.price("vllm:my-own", Usage(1, 1)) is None
