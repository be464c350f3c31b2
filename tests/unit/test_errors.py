"""Errors: their messages and their retryability."""

import pytest

from lango import errors


def test_an_error_says_where_it_happened() -> None:
    error = errors.RateLimitedError(
        "Slow down.", provider="openai", model="gpt-5", status=429, request_id="req_1"
    )
    assert str(error) == "Slow down. (openai gpt-5, HTTP 429, request req_1)"
    assert (error.partial_text, error.retry_after) == ("", None)


def test_an_error_that_knows_nothing_says_what_its_class_does() -> None:
    assert str(errors.BadStreamError()) == errors.BadStreamError.__doc__


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        (errors.AuthenticationError, False),
        (errors.BadRequestError, False),
        (errors.BadStreamError, True),
        (errors.ContextTooLongError, False),
        (errors.MissingExtraError, False),
        (errors.ModelTimeoutError, True),
        (errors.ModelUnavailableError, True),
        (errors.RateLimitedError, True),
        (errors.UnknownModelError, False),
    ],
)
def test_whether_trying_again_may_help(kind: type[errors.ModelError], retryable: bool) -> None:
    assert kind.retryable is retryable
    assert isinstance(kind(), errors.ModelError)


def test_pythons_own_kinds_catch_them_too() -> None:
    assert issubclass(errors.MissingExtraError, ImportError)
    assert issubclass(errors.UnknownModelError, ValueError)
