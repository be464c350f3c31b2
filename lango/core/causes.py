"""The cause of a failure, for developers and operators: an exception's type, text and location.

A cause is stored with the turn. Clients never see it; admins of the tenant do.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from traceback import FrameSummary, StackSummary, walk_tb
from typing import Final

from lango.core.redaction import redacted
from lango.core.values import storable_text

MAX_TEXT: Final = 2_000
"""Characters kept of an exception's message."""
MAX_CAUSES: Final = 20
"""Causes kept of one turn."""
_READ: Final = 10 * MAX_TEXT
_MAX_LINKS: Final = 5
_GROUPS: Final[tuple[type[BaseException], ...]] = (BaseExceptionGroup, ExceptionGroup)
_OWN: Final = Path(__file__).resolve().parents[1]
_INSTALLED: Final = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Cause:
    """A raised exception; `place` is the location of the innermost frame of the user's code, else
    of any code. The database and the API have these fields by these names.
    """

    type: str
    message: str
    place: str = ""  # "/srv/shop/agent.py:12, in lookup"

    def __str__(self) -> str:
        text = f"{self.type}: {self.message}" if self.message else self.type
        return f"{text} ({self.place})" if self.place else text


Causes = Mapping[str, Cause]
"""Causes of a turn's failures, by error id."""


def cause_of(error: BaseException) -> Cause:
    """The cause of an exception: redacted, and of bounded length.

    Of a group it is the first exception. The message names the exceptions that it was raised from;
    their frames are searched for the user's code too.
    """
    first, *others = _chain(_single(error))
    texts = [
        _text(first),
        *(f"caused by {type(cause).__name__}: {_text(cause)}" for cause in others),
    ]
    message = storable_text(redacted("; ".join(filter(None, texts))[:_READ]))
    return Cause(type(first).__name__, message[:MAX_TEXT], _location([first, *others]))


def _single(error: BaseException) -> BaseException:
    """The exception, or the first one of a group."""
    if type(error) not in _GROUPS:
        return error
    inner: Sequence[BaseException] = getattr(error, "exceptions", None) or [error]
    return _single(inner[0])


def _chain(error: BaseException) -> list[BaseException]:
    """The exception, and those that it was raised from."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and len(chain) < _MAX_LINKS:
        if _single(cause) in chain:
            break
        chain.append(_single(cause))
    return chain


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - foreign code may raise anything
        return "(its message cannot be read)"


def _location(chain: list[BaseException]) -> str:
    frames = [frame for error in chain for frame in _frames(error)]
    own_frames = (frame for frame in frames if _is_own(frame.filename))
    origin = next(own_frames, frames[0] if frames else None)
    return f"{origin.filename}:{origin.lineno}, in {origin.name}" if origin else ""


def _frames(error: BaseException) -> Iterator[FrameSummary]:
    """The frames of an exception, the innermost first."""
    stack = StackSummary.extract(walk_tb(error.__traceback__), lookup_lines=False)
    return reversed(stack)


@cache
def _is_own(filename: str) -> bool:
    """Whether a file is the user's: not Python's, not installed, not lango's."""
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    return not any(
        (
            path.is_relative_to(_OWN),
            any(name in path.parts for name in _INSTALLED),
            path.is_relative_to(sysconfig.get_path("stdlib")),
        )
    )
