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
    soon = formatdate(time.time() + 30, usegmt=True)
    assert 25 < (retry_after({"retry-after": soon}) or 0) <= 31


def test_faults_of_the_connection() -> None:
    import httpx
    import httpx2

    for library in (httpx, httpx2):
        assert isinstance(of_transport(library.ReadTimeout("slow")), ModelTimeoutError)
        assert isinstance(of_transport(library.ConnectError("no")), ModelUnavailableError)
    assert isinstance(of_transport(TimeoutError()), ModelTimeoutError)
    assert isinstance(of_transport(ConnectionResetError()), ModelUnavailableError)
    assert of_transport(ValueError()) is None
