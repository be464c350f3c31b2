"""Label values of bounded number: each new value is a new series in Prometheus, for ever."""

from __future__ import annotations

from typing import Final

OTHER: Final = "other"
"""Stands for every value beyond the bound."""
_MAX_LENGTH: Final = 100


class BoundedLabel:
    """Passes the first `most` values of a label; later ones become `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __contains__(self, value: str) -> bool:
        """Whether the value is one of those that pass."""
        return value in self._known

    def __call__(self, value: str) -> str:
        """The value, or `other`."""
        if value in self._known:
            return value
        if len(self._known) >= self._most or not 0 < len(value) <= _MAX_LENGTH:
            return OTHER
        self._known.add(value)
        return value

    def if_known(self, value: str) -> str:
        """The value if it has passed before, else `other`."""
        return value if value in self._known else OTHER
