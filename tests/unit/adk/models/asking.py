"""Asking a model what ADK would ask it."""

from typing import Any

from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from lango.adk.models.adapter import ModelAdapter
from lango.errors import ContextTooLongError
from lango.testing import Fault, Reply, ScriptedProvider

TOO_LONG = Reply(fault=Fault(0, ContextTooLongError("too long")))
THOUSAND = "a" * 2656  # a message of exactly 1,000 tokens


def request(*texts: str, **config: Any) -> LlmRequest:
    roles = ["user", "model"]
    contents = [
        types.Content(role=roles[number % 2], parts=[types.Part(text=words)])
        for number, words in enumerate(texts or ("hi",))
    ]
    return LlmRequest(contents=contents, config=types.GenerateContentConfig(**config))


async def ask(
    model: ModelAdapter, llm_request: LlmRequest | None = None, *, stream: bool = False
) -> list[LlmResponse]:
    model_request = llm_request or request()
    return [
        response async for response in model.generate_content_async(model_request, stream=stream)
    ]


def texts(responses: list[LlmResponse]) -> list[str | None]:
    return [
        part.text
        for response in responses
        for part in (response.content and response.content.parts) or []
    ]


def scripted(*replies: Reply | str, **options: Any) -> tuple[ModelAdapter, ScriptedProvider]:
    provider = ScriptedProvider(replies)
    return ModelAdapter(provider, "demo", **options), provider
