"""Opaque reasoning data: stored byte for byte with its position in the answer, and sent back.

Model families that sign their reasoning depend on the order of an answer, and a Message stores
text and calls separately. So each piece records its position: 0 before everything, 1 after the
text, 2 after the first call, and so on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

from lango.core.messages.messages import Message, Reasoning
from lango.core.values import JsonObject, json_text

T = TypeVar("T")

PositionedItem = tuple[int, JsonObject]


def pack(position: int, item: JsonObject) -> str:
    """The opaque text of a piece of reasoning."""
    return json_text({"at": position, "item": item})


def own(message: Message, family: str, model: str | None = None) -> list[PositionedItem]:
    """The pieces in a message from this family (and from this model, if one is given)."""
    pieces = (
        _unpack(piece)
        for piece in message.reasoning
        if piece.opaque and piece.provider == family and model in (None, piece.model)
    )
    return [piece for piece in pieces if piece is not None]


def _unpack(piece: Reasoning) -> PositionedItem | None:
    """Position and item; None for data that `pack` did not write."""
    try:
        packed: Any = json.loads(piece.opaque)
    except (ValueError, RecursionError):
        return None
    if not isinstance(packed, dict):
        return None
    fields = cast(JsonObject, packed)
    position, item = fields.get("at"), fields.get("item")
    if not isinstance(position, int) or not isinstance(item, dict):
        return None
    return position, cast(JsonObject, item)


def interleave(
    pieces: Iterable[tuple[int, T]], text: Sequence[T], calls: Sequence[T]
) -> Iterator[T]:
    """Text and calls with the pieces inserted at their positions."""
    waiting = list(pieces)
    for index, own_pieces in enumerate(([], text, *([call] for call in calls))):
        yield from own_pieces
        yield from (piece for position, piece in waiting if position == index)
    end = 1 + len(calls)
    yield from (piece for position, piece in waiting if not 0 <= position <= end)
