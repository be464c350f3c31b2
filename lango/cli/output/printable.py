"""Text from models, tools and databases, without control characters for the terminal."""

from __future__ import annotations

from typing import Final

_KEPT: Final = "\n\t"
_INSTEAD: Final = "\ufffd"


def printable(text: str) -> str:
    """The text with unprintable characters replaced; line ends and tabs stay."""
    return "".join(
        letter if letter.isprintable() or letter in _KEPT else _INSTEAD for letter in text
    )


def one_line(text: str, width: int) -> str:
    """The text on one line of at most `width` characters."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
