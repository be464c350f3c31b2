"""From a vendor's words for what went wrong to ours."""

import time
from email.utils import formatdate

import pytest

from lango.errors import (
    AuthenticationError,
    BadRequestError,
    ContextTooLongError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    RateLimitedError,
    UnknownModelError,
)
from lango.providers import anthropic
from lango.providers.shared import openai_sdk
from lango.providers.shared.errors import (
    FaultTable,
    VendorError,
    by_status,
    of_transport,
    retry_after,
)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, BadRequestError),
        (401, AuthenticationError),
        (402, AuthenticationError),
        (403, AuthenticationError),
        (404, UnknownModelError),
        (408, ModelTimeoutError),
        (413, ContextTooLongError),
        (422, BadRequestError),
        (429, RateLimitedError),
        (500, ModelUnavailableError),
        (503, ModelUnavailableError),
        (504, ModelTimeoutError),
        (529, ModelUnavailableError),
        (200, ModelUnavailableError),
        (None, ModelUnavailableError),
    ],
)
def test_statuses(status: int | None, error: type[ModelError]) -> None:
    assert by_status(status) is error


def test_the_most_exact_word_wins() -> None:
    table = FaultTable({"quota": AuthenticationError, "bad": BadRequestError}, ("too many",))
    assert type(table.error(VendorError("no", 429, ("quota", "bad")))) is AuthenticationError
    assert type(table.error(VendorError("too many tokens", 400, ("bad",)))) is ContextTooLongError
    assert (
        type(table.error(VendorError("too many requests", 429, ("quota",)))) is AuthenticationError
    )
    assert type(table.error(VendorError("no", 429, ("new",)))) is RateLimitedError


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, BadRequestError),
        (401, AuthenticationError),
        (402, AuthenticationError),
        (404, UnknownModelError),
        (429, RateLimitedError),
        (503, ModelUnavailableError),
        (200, BadRequestError),
        (None, BadRequestError),
    ],
)
def test_a_status_says_more_than_a_general_code(
    status: int | None, error: type[ModelError]
) -> None:
    codes = ("invalid_request_error", "unknown_error")
    assert type(openai_sdk.FAULTS.error(VendorError("No", status, codes))) is error
    assert type(anthropic.FAULTS.error(VendorError("No", status, codes))) is error


TOO_LONG = (
    (400, "BadRequestError", "This model's maximum context length is 16384 tokens."),
    (
        400,
        "BadRequestError",
        "The decoder prompt (length 9) is longer than the maximum model length",
    ),
    (400, "BadRequestError", "The input (9 tokens) is longer than the model's context length (8)."),
    (400, "", "This model's maximum prompt length is 131072 but the request contains 136973."),
    (400, "invalid_request_error", "Your request exceeded model token limit: 262144"),
    (500, "server_error", "Context size has been exceeded."),
    (400, "", "Input is too long for requested model."),
)


@pytest.mark.parametrize(("status", "code", "message"), TOO_LONG)
def test_a_prompt_that_is_too_long(status: int, code: str, message: str) -> None:
    error = openai_sdk.FAULTS.error(VendorError(message, status, (code,)))
    assert type(error) is ContextTooLongError


@pytest.mark.parametrize(
    "message", ["Prompt is too long", "Input is too long for requested model."]
)
def test_a_prompt_that_is_too_long_for_anthropic_s_models(message: str) -> None:
    error = anthropic.FAULTS.error(VendorError(message, 400, ("invalid_request_error",)))
    assert type(error) is ContextTooLongError


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-1"}, 0.0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "1e9"}, 86_400.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_retry_after_as_a_date() -> None:
    soon = formatdate(time.time() + 3_000, usegmt=True)
    assert 2_900 < (retry_after({"retry-after": soon}) or 0) <= 3_001


def test_faults_of_the_connection() -> None:
    import httpx
    import httpx2

    for library in (httpx, httpx2):
        assert isinstance(of_transport(library.ReadTimeout("slow")), ModelTimeoutError)
        assert isinstance(of_transport(library.ConnectError("no")), ModelUnavailableError)
    assert isinstance(of_transport(TimeoutError()), ModelTimeoutError)
    assert isinstance(of_transport(ConnectionResetError()), ModelUnavailableError)
    assert of_transport(ValueError()) is None
