"""Models by name: "openai:gpt-5", "ollama:llama3.2:3b". Each gateway is one row of data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from lango.core.messages.streams import Usage
from lango.core.named_code import did_you_mean
from lango.errors import UnknownModelError
from lango.providers.base import Embedding, Provider
from lango.providers.embeddings import Embedder
from lango.providers.openai_chat import OPENAI, Quirks
from lango.providers.policy.retry import Fallback, Policy, PolicyProvider

Wire = Literal["chat", "responses", "anthropic", "gemini", "scripted"]

NO_KEY: Final = "none"
"""The key for self-hosted servers that require none."""

_THINK: Final = {
    True: {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}},
    False: {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
}
_THINKING: Final = {
    True: {"extra_body": {"thinking": {"type": "enabled"}}},
    False: {"extra_body": {"thinking": {"type": "disabled"}}},
}
_EFFORT: Final = {True: {"reasoning_effort": "medium"}, False: {"reasoning_effort": "none"}}


_PLAIN: Final = Quirks()
_EXTRAS: Final[Mapping[Wire, str]] = {
    "chat": "openai",
    "responses": "openai",
    "anthropic": "anthropic",
}
"""The extra with the SDK of a provider API; Gemini's comes with google-adk."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A model gateway: its API, URL, key variable and quirks."""

    name: str
    wire: Wire
    base_url: str = ""  # empty: the SDK's default
    key: str = ""  # the environment variable with the key; empty: none is needed
    quirks: Quirks = _PLAIN
    prices: str = ""  # its name in genai-prices

    @property
    def extra(self) -> str | None:
        """The extra of the package that it requires."""
        return _EXTRAS.get(self.wire)

    @property
    def url_name(self) -> str:
        """The environment variable that can override its base URL."""
        return f"{self.name.upper().replace('-', '_')}_BASE_URL"


@dataclass(frozen=True, slots=True)
class Access:
    """A provider's key and base URL; they take precedence over its environment variables."""

    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None


_LOCAL: Final = Quirks(thinking=_THINK)
GATEWAYS: Final[Sequence[Gateway]] = (
    Gateway("openai", "responses", key="OPENAI_API_KEY", prices="openai"),
    Gateway("openai-chat", "chat", key="OPENAI_API_KEY", quirks=OPENAI, prices="openai"),
    Gateway("anthropic", "anthropic", key="ANTHROPIC_API_KEY", prices="anthropic"),
    Gateway("gemini", "gemini", key="GEMINI_API_KEY", prices="google"),
    Gateway("scripted", "scripted"),
    # Self-hosted servers.
    Gateway("vllm", "chat", "http://127.0.0.1:8000/v1", quirks=_LOCAL),
    Gateway("sglang", "chat", "http://127.0.0.1:30000/v1", quirks=_LOCAL),
    Gateway("llamacpp", "chat", "http://127.0.0.1:8080/v1", quirks=_LOCAL),
    Gateway("ollama", "chat", "http://127.0.0.1:11434/v1", quirks=Quirks(thinking=_EFFORT)),
    Gateway("lmstudio", "chat", "http://127.0.0.1:1234/v1"),
    # Hosted services.
    Gateway(
        "openrouter",
        "chat",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        Quirks(
            thinking={
                True: {"extra_body": {"reasoning": {"enabled": True}}},
                False: {"extra_body": {"reasoning": {"enabled": False}}},
            }
        ),
        "openrouter",
    ),
    Gateway(
        "groq",
        "chat",
        "https://api.groq.com/openai/v1",
        "GROQ_API_KEY",
        Quirks(max_tokens="max_completion_tokens"),
        "groq",
    ),
    Gateway(
        "together", "chat", "https://api.together.xyz/v1", "TOGETHER_API_KEY", prices="together"
    ),
    Gateway(
        "fireworks",
        "chat",
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
        prices="fireworks",
    ),
    Gateway(
        "deepseek",
        "chat",
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
        Quirks(json_schema=False, thoughts_back="reasoning_content", thinking=_THINKING),
        "deepseek",
    ),
    Gateway(
        "mistral",
        "chat",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        Quirks(ask_for_usage=False, nine_letter_ids=True, answer_after_tool=True),
        "mistral",
    ),
    Gateway("xai", "chat", "https://api.x.ai/v1", "XAI_API_KEY", prices="x-ai"),
    Gateway(
        "cerebras", "chat", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", prices="cerebras"
    ),
    Gateway(
        "moonshot",
        "chat",
        "https://api.moonshot.ai/v1",
        "MOONSHOT_API_KEY",
        Quirks(thoughts_back="reasoning_content", thinking=_THINKING),
        "moonshotai",
    ),
    Gateway(
        "perplexity", "chat", "https://api.perplexity.ai", "PERPLEXITY_API_KEY", prices="perplexity"
    ),
)
_BY_NAME: Final = {gateway.name: gateway for gateway in GATEWAYS}


def gateway_of(name: str) -> tuple[Gateway, str]:
    """The gateway and the model of a name like "openai:gpt-5"."""
    provider, _, model = name.partition(":")
    gateway = _BY_NAME.get(provider)
    if gateway is None:
        names = ", ".join(sorted(_BY_NAME))
        raise UnknownModelError(
            f"{name!r} names no provider: write provider:model, where provider is one of {names}."
            f"{did_you_mean(provider, list(_BY_NAME))}"
        )
    if not model:
        raise UnknownModelError(
            f"{name!r} names no model: write {provider}:<model>.", provider=provider
        )
    return gateway, model


def resolve(
    name: str,
    *,
    policy: Policy | None = None,
    fallbacks: Sequence[str] = (),
    access: Mapping[str, Access] | None = None,
) -> tuple[Provider, str]:
    """The provider of a name, wrapped in the policy, and the provider's model name.

    `access` has keys and base URLs by provider; they take precedence over the environment.
    """
    policy, access = policy or Policy(), access or {}
    gateway, model = gateway_of(name)
    provider = _provider(gateway, policy, access)
    fallback_providers = [_fallback(fallback, policy, access) for fallback in fallbacks]
    return PolicyProvider(provider, policy, fallbacks=fallback_providers), model


def resolve_embedder(name: str, *, access: Mapping[str, Access] | None = None) -> Embedder:
    """The embedding model of a name like "openai:text-embedding-3-small"."""
    gateway, model = gateway_of(name)
    provider = _provider(gateway, Policy(), access or {})
    if not isinstance(provider, Embedding):
        raise UnknownModelError(
            f"{gateway.name} has no embedding models: name one of openai, gemini, or of a server "
            "with OpenAI's API, such as ollama or vllm.",
            provider=gateway.name,
        )
    return Embedder(provider, name, model)


def _fallback(name: str, policy: Policy, access: Mapping[str, Access]) -> Fallback:
    row, model = gateway_of(name)
    return Fallback(_provider(row, policy, access), model, context_window(name))


def _provider(row: Gateway, policy: Policy, access: Mapping[str, Access]) -> Provider:
    own_access = access.get(row.name, Access())
    url = own_access.base_url or os.environ.get(row.url_name) or row.base_url or None
    options: Any = {"name": row.name, "base_url": url, "timeouts": policy.timeouts}
    options["api_key"] = own_access.api_key
    match row.wire:
        case "responses":
            from lango.providers.openai_responses import OpenAIResponsesProvider

            return OpenAIResponsesProvider(**options)
        case "anthropic":
            from lango.providers.anthropic import AnthropicProvider

            return AnthropicProvider(**options)
        case "gemini":
            from lango.providers.gemini import GeminiProvider

            return GeminiProvider(**options)
        case "scripted":
            from lango.providers.scripted import ScriptedProvider

            return ScriptedProvider()
        case "chat":
            from lango.providers.openai_chat import OpenAIChatProvider

            options["api_key"] = own_access.api_key or (None if row.key else NO_KEY)
            return OpenAIChatProvider(key_name=row.key, quirks=row.quirks, **options)


def context_window(name: str) -> int | None:
    """A model's context window in tokens; None if unknown (or genai-prices is not installed)."""
    try:
        gateway, model = gateway_of(name)
        if gateway.wire == "scripted":
            return None
        from genai_prices.data_snapshot import get_snapshot

        match = get_snapshot().find_provider_model(model, None, gateway.prices or None, None)
    except (ImportError, LookupError, UnknownModelError):
        return None
    return match[1].context_window


def price(name: str, usage: Usage) -> float | None:
    """The cost of a call in US dollars; None if unknown."""
    try:
        gateway, model = gateway_of(name)
        if not gateway.prices:
            return None
        import genai_prices

        counted = genai_prices.Usage(
            input_tokens=usage.input,
            cache_read_tokens=usage.cached,
            cache_write_tokens=usage.written,
            output_tokens=usage.output,
        )
        cost = genai_prices.calc_price(counted, model, provider_id=gateway.prices)
    except (ImportError, LookupError, UnknownModelError):
        return None
    return float(cost.total_price)
