"""What went wrong with a model, from a vendor's words to ours."""

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
"""What a status means when nothing more exact is said; other 4xx: bad request, 5xx: unavailable."""

_TRANSPORTS: Final = frozenset({"aiohttp", "anyio", "httpcore", "httpcore2", "httpx", "httpx2"})
_MOST_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Said:
    """What a vendor's exception says, in no vendor's words."""

    message: str
    status: int | None = None
    codes: tuple[str, ...] = ()  # the vendor's own names for it, the most exact first
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class FaultTable:
    """One wire's faults: its codes, and the words by which it says that a prompt is too long."""

    codes: Mapping[str, type[ModelError]]
    too_long: tuple[str, ...] = ()

    def error(self, said: Said) -> ModelError:
        """The error of ours that says the same."""
        kind = self._kind(said)
        return kind(
            said.message,
            status=said.status,
            request_id=said.request_id,
            retry_after=retry_after(said.headers),
        )

    def _kind(self, said: Said) -> type[ModelError]:
        found = next((self.codes[code] for code in said.codes if code in self.codes), None)
        if found in (None, BadRequestError) and any(
            words in said.message for words in self.too_long
        ):
            return ContextTooLongError
        return found or by_status(said.status)


def by_status(status: int | None) -> type[ModelError]:
    """What an HTTP status means by itself; an error inside an answer has none that says so."""
    if status is None or status < 400 or status >= 500:
        return BY_STATUS.get(status or 500, ModelUnavailableError)
    return BY_STATUS.get(status, BadRequestError)


def of_transport(error: BaseException) -> ModelError | None:
    """A fault of the connection, whichever library reports it; None if it is none of these."""
    if isinstance(error, TimeoutError):
        return ModelTimeoutError()
    kinds = [kind for kind in type(error).__mro__ if kind is not Exception]
    if any(kind.__module__.partition(".")[0] in _TRANSPORTS for kind in kinds):
        timed_out = any("Timeout" in kind.__name__ for kind in kinds)
        return ModelTimeoutError() if timed_out else ModelUnavailableError(_reason(error))
    return ModelUnavailableError(_reason(error)) if isinstance(error, OSError) else None


def of_nonsense(error: Exception) -> ModelError:
    """Whatever else stops a stream: what came was no answer of that vendor's."""
    return BadStreamError(f"The answer could not be read: {_reason(error)}")


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:100]}".removesuffix(": ")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that the headers ask to wait: Retry-After in either form, or its -ms cousin."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return _sane(milliseconds / 1_000)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return _sane(seconds)
    try:
        then = email.utils.parsedate_to_datetime(value or "").timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return _sane(then - time.time())


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _sane(seconds: float) -> float:
    return min(max(seconds, 0.0), _MOST_SECONDS)
