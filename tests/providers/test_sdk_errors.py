"""Exceptions of vendors' SDKs, and of classes derived from theirs, as lango's model errors."""

from __future__ import annotations

import anthropic
import httpx
import httpx2
import openai
import pytest
from google.adk.models.google_llm import _ResourceExhaustedError  # pyright: ignore[reportPrivateUsage]
from google.genai.errors import ClientError, ServerError

from lango.errors import (
    AuthenticationError,
    ModelError,
    ModelUnavailableError,
    RateLimitedError,
)
from lango.providers.sdk_errors import model_error

URL = "http://model.test"
REFUSED = httpx.Response(401, request=httpx.Request("POST", URL))
SENT = httpx2.Request("POST", URL)
LIMITED = httpx2.Response(429, request=SENT)


class RouterError(openai.RateLimitError):
    """As litellm derives its errors from openai's."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ClientError(403, {"error": {"message": "no"}}), AuthenticationError),
        (ServerError(503, {"error": {"message": "down"}}), ModelUnavailableError),
        (_ResourceExhaustedError(ClientError(429, {"error": {}})), RateLimitedError),
        (RouterError("slow", response=LIMITED, body=None), RateLimitedError),
        (openai.APIConnectionError(request=SENT), ModelUnavailableError),
        (anthropic.AuthenticationError("no", response=REFUSED, body=None), AuthenticationError),
    ],
)
def test_an_error_of_an_sdk(error: Exception, expected: type[ModelError]) -> None:
    assert type(model_error(error)) is expected


@pytest.mark.parametrize(
    "error", [ValueError("openai"), TypeError("no api_key"), httpx.ConnectError("")]
)
def test_other_errors_are_not_model_errors(error: Exception) -> None:
    assert model_error(error) is None
