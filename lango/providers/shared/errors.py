"""Maps vendors' errors to lango's model errors."""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

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

BY_STATUS: Final[Mapping[int, type[ModelError]]] = {
    401: AuthenticationError,
    402: AuthenticationError,
    403: AuthenticationError,
    404: UnknownModelError,
    408: ModelTimeoutError,
    413: ContextTooLongError,
    425: ModelUnavailableError,
    429: RateLimitedError,
    504: ModelTimeoutError,
}
"""Errors by status, if no code is more specific; other 4xx: bad request, 5xx: unavailable."""

_GENERAL: Final = frozenset({None, BadRequestError, ModelUnavailableError})
"""What servers report for many reasons; a prompt that is too long may be one of them."""
_TRANSPORTS: Final = frozenset({"aiohttp", "anyio", "httpcore", "httpcore2", "httpx", "httpx2"})
_MAX_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class VendorError:
    """The vendor-neutral content of a vendor's exception."""

    message: str
    status: int | None = None
    codes: tuple[str, ...] = ()  # the vendor's error codes, the most specific first
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class FaultTable:
    """One API's errors: its codes, and phrases (in lower case) for a prompt that is too long."""

    codes: Mapping[str, type[ModelError]]
    too_long: tuple[str, ...] = ()

    def error(self, reported: VendorError) -> ModelError:
        """The corresponding lango error."""
        kind = self._kind(reported)
        return kind(
            reported.message,
            status=reported.status,
            request_id=reported.request_id,
            retry_after=retry_after(reported.headers),
        )

    def _kind(self, reported: VendorError) -> type[ModelError]:
        kind = next((self.codes[code] for code in reported.codes if code in self.codes), None)
        if kind in _GENERAL and self._is_too_long(reported.message):
            return ContextTooLongError
        if kind is BadRequestError and (reported.status or 0) >= 400:
            return by_status(reported.status)  # DeepSeek: an empty account is an invalid request
        return kind or by_status(reported.status)

    def _is_too_long(self, message: str) -> bool:
        message = message.lower()
        return any(words in message for words in self.too_long)


def by_status(status: int | None) -> type[ModelError]:
    """The error for an HTTP status alone; an error inside a stream has no error status."""
    if status is None or status < 400 or status >= 500:
        return BY_STATUS.get(status or 500, ModelUnavailableError)
    return BY_STATUS.get(status, BadRequestError)


def of_transport(error: BaseException) -> ModelError | None:
    """The error for a connection fault of any HTTP library; None for other exceptions."""
    if isinstance(error, TimeoutError):
        return ModelTimeoutError()
    kinds = [kind for kind in type(error).__mro__ if kind is not Exception]
    if any(kind.__module__.partition(".")[0] in _TRANSPORTS for kind in kinds):
        timed_out = any("Timeout" in kind.__name__ for kind in kinds)
        return ModelTimeoutError() if timed_out else ModelUnavailableError(_reason(error))
    return ModelUnavailableError(_reason(error)) if isinstance(error, OSError) else None


def of_invalid_stream(error: Exception) -> ModelError:
    """The error for any other exception in a stream: the data was not a valid answer."""
    return BadStreamError(f"The answer could not be read: {_reason(error)}")


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:100]}".removesuffix(": ")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds to wait by the headers: Retry-After in either form, or retry-after-ms."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return _sane(milliseconds / 1_000)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return _sane(seconds)
    try:
        moment = email.utils.parsedate_to_datetime(value or "").timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return _sane(moment - time.time())


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _sane(seconds: float) -> float:
    return min(max(seconds, 0.0), _MAX_SECONDS)
