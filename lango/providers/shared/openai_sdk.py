"""Shared by both OpenAI APIs: the SDK's client, and the mapping of its errors."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from lango.core.values import JsonObject
from lango.errors import (
    AuthenticationError,
    BadRequestError,
    BadStreamError,
    ContextTooLongError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    RateLimitedError,
    UnknownModelError,
)
from lango.providers.base import ModelRequest
from lango.providers.shared.assembly import Assembly
from lango.providers.shared.chunks import ChunkFormat, Chunks, json_chunk, open_chunks
from lango.providers.shared.decoding import missing
from lango.providers.shared.errors import FaultTable, VendorError
from lango.providers.shared.sdk import SdkProvider

if TYPE_CHECKING:
    from openai import APIError, AsyncOpenAI

REQUEST_ID: Final = "x-request-id"
OPENAI_KEY: Final = "OPENAI_API_KEY"
FAULTS: Final = FaultTable(
    codes={
        "context_length_exceeded": ContextTooLongError,
        "exceed_context_size_error": ContextTooLongError,  # llama.cpp
        "string_above_max_length": ContextTooLongError,
        "insufficient_quota": AuthenticationError,  # a retry does not help: the account must pay
        "billing_hard_limit_reached": AuthenticationError,
        "invalid_api_key": AuthenticationError,
        "model_not_found": UnknownModelError,
        "rate_limit_exceeded": RateLimitedError,
        "rate_limit_error": RateLimitedError,
        "server_error": ModelUnavailableError,
        "overloaded_error": ModelUnavailableError,
        "service_unavailable": ModelUnavailableError,
        "invalid_prompt": BadRequestError,
        "invalid_request_error": BadRequestError,
    },
    too_long=(
        "context length",  # OpenAI, vLLM, SGLang, LM Studio, OpenRouter
        "context window",  # OpenAI's Responses, LM Studio
        "context size",  # llama.cpp, Ollama
        "prompt is too long",
        "maximum model length",  # vLLM
        "maximum prompt length",  # xAI
        "exceeded model token limit",  # Moonshot
        "input is too long",  # Bedrock, by way of a gateway
        "too large for model with",  # Mistral
    ),
)


class OpenAIProvider(SdkProvider["AsyncOpenAI", JsonObject]):
    """A provider on OpenAI's SDK, for any server."""

    key_name: str = OPENAI_KEY
    """The environment variable with the key, if none is passed."""

    def _make(self) -> AsyncOpenAI:
        try:
            import openai
        except ImportError as error:
            raise missing("openai") from error
        # Twice the idle time, so that lango's own timeout fires first.
        patience = openai.Timeout(2 * self._timeouts.idle, connect=self._timeouts.connect)
        # By default the SDK would send OpenAI's key to any server.
        key = self._api_key or os.environ.get(self.key_name)
        if not key:
            raise AuthenticationError(f"There is no key: set {self.key_name}.")
        return openai.AsyncOpenAI(
            api_key=key, base_url=self._base_url, timeout=patience, max_retries=0
        )

    async def embed(self, model: str, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of texts, in their order."""

        # As numbers: the SDK would ask for base64, which not every server knows.
        async def request(client: AsyncOpenAI) -> list[list[float]]:
            answer = await client.embeddings.create(
                model=model, input=list(texts), encoding_format="float"
            )
            return [item.embedding for item in sorted(answer.data, key=lambda item: item.index)]

        return await self._requested(request)

    @abstractmethod
    def _encode(self, request: ModelRequest) -> JsonObject:
        """The arguments of the API's `create`."""

    def _open(self, resource: Any, request: ModelRequest, answer: Assembly) -> Awaitable[Chunks]:
        body = self._encode(request)
        return open_chunks(resource, body, answer, FORMAT)

    def _explain(self, error: Exception) -> ModelError | None:
        return explain(error)

    async def _close_client(self, client: AsyncOpenAI) -> None:
        await client.close()


def explain(error: Exception) -> ModelError | None:
    """The lango error for an SDK error; None for other exceptions."""
    import openai

    if isinstance(error, openai.APITimeoutError):
        return ModelTimeoutError()
    if isinstance(error, openai.APIConnectionError):
        return ModelUnavailableError(f"The server could not be reached: {error.__cause__ or error}")
    if isinstance(error, openai.APIResponseValidationError):
        return BadStreamError(str(error))
    return _api_error(error) if isinstance(error, openai.APIError) else None


def _api_error(error: APIError) -> ModelError:
    response = getattr(error, "response", None)
    headers: Mapping[str, str] | None = getattr(response, "headers", None)
    return reported_error(error.body, error.message, getattr(error, "status_code", None), headers)


def reported_error(
    reported: object,
    default: str,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> ModelError:
    """The lango error for an error that the server reported, before or within its answer."""
    headers = headers or {}
    body = cast(JsonObject, reported) if isinstance(reported, dict) else {}
    codes = tuple(str(code) for code in (body.get("code"), body.get("type")) if code)
    if status is None:
        status = next((int(code) for code in codes if code.isdecimal()), None)
    message = str(body.get("message") or default)
    request_id = str(headers.get(REQUEST_ID) or "")
    return FAULTS.error(VendorError(message, status, codes, headers, request_id))


def _read_chunk(name: bytes, data: bytes) -> JsonObject | None:
    if not data:
        return None
    chunk = json_chunk(data)
    error: Any = chunk.get("error") or (chunk if name == b"error" else None)
    if error:
        raise reported_error(
            error, error if isinstance(error, str) else "The server reported an error."
        )
    return chunk


FORMAT: Final = ChunkFormat(REQUEST_ID, _read_chunk, end=b"[DONE]")
