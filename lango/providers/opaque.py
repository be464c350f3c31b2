"""Reasoning on its way out and back: what a family gave, kept byte for byte, and where it stood.

The order of an answer matters to the families that sign their thoughts, and a Message keeps
text and calls apart. So each piece remembers its place: 0 before everything, 1 after the text,
2 after the first call, and so on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

from lango.core.messages import Message, Reasoning
from lango.core.values import JsonObject, json_text

T = TypeVar("T")

Placed = tuple[int, JsonObject]


def pack(place: int, item: JsonObject) -> str:
    """The opaque text of a piece of reasoning."""
    return json_text({"at": place, "item": item})


def own(message: Message, family: str, model: str | None = None) -> list[Placed]:
    """The pieces in a message that this family gave (and this model, when it is so strict)."""
    pieces = (
        _unpack(piece)
        for piece in message.reasoning
        if piece.opaque and piece.provider == family and model in (None, piece.model)
    )
    return [piece for piece in pieces if piece is not None]


def _unpack(piece: Reasoning) -> Placed | None:
    """Place and item; nothing for data that is not ours, which no family would take."""
    try:
        packed: Any = json.loads(piece.opaque)
    except (ValueError, RecursionError):
        return None
    if not isinstance(packed, dict):
        return None
    fields = cast(JsonObject, packed)
    place, item = fields.get("at"), fields.get("item")
    if not isinstance(place, int) or not isinstance(item, dict):
        return None
    return place, cast(JsonObject, item)


def interleave(
    pieces: Iterable[tuple[int, T]], text: Sequence[T], calls: Sequence[T]
) -> Iterator[T]:
    """Text and calls with the pieces back in their places."""
    waiting = list(pieces)
    for place, others in enumerate(([], text, *([call] for call in calls))):
        yield from others
        yield from (piece for at, piece in waiting if at == place)
    beyond = 1 + len(calls)
    yield from (piece for at, piece in waiting if not 0 <= at <= beyond)
