"""An App's setting for explicit prompt caches reaches ADK's own models in durable turns."""

from collections.abc import AsyncGenerator
from time import time

from google.adk.agents import LlmAgent
from google.adk.agents.context_cache_config import ContextCacheConfig
from google.adk.apps.app import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.cache_metadata import CacheMetadata
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import PrivateAttr

from tests.adk.durable.talks import talking
from tests.store.turns.turn_stores import APP


class Caching(BaseLlm):
    """A model class that keeps a cache, as ADK's Gemini does."""

    _requests: list[LlmRequest] = PrivateAttr(default_factory=list[LlmRequest])

    @property
    def requests(self) -> list[LlmRequest]:
        return self._requests

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        del stream
        self._requests.append(llm_request)
        yield LlmResponse(
            content=types.Content(role="model", parts=[types.Part(text="yes")]),
            usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=5_000),
            cache_metadata=CacheMetadata(
                cache_name="cachedContents/1",
                expire_time=time() + 1_800,
                fingerprint="f",
                invocations_used=1,
                contents_count=1,
            ),
        )


async def test_a_cache_is_found_again_in_the_next_turn(store_url: str, tenant: str) -> None:
    async with talking(store_url, tenant) as talk:
        model, caching = Caching(model="caching"), ContextCacheConfig(ttl_seconds=600)
        root = LlmAgent(name="root", model=model)
        durable = talk.durable(root=App(name=APP, root_agent=root, context_cache_config=caching))
        for text in ("one", "two"):
            turn = await talk.turn(durable, text)
            assert turn.state == "completed"
    first, second = model.requests
    assert first.cache_config == second.cache_config == caching
    assert first.cache_metadata is None
    assert second.cache_metadata is not None
    assert second.cache_metadata.cache_name == "cachedContents/1"
    assert second.cacheable_contents_token_count == 5_000
