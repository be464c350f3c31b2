"""What a turn is told, as its row keeps it: a user's message, or a person's answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from lango.core.turns import Answer
from lango.core.values import JsonObject, storable_json


def input_of(said: str | Sequence[Answer]) -> JsonObject:
    """The input of a turn that begins with this."""
    if isinstance(said, str):
        return {"text": said}
    return {"answers": [storable_json(asdict(answer)) for answer in said]}


def said_in(given: JsonObject) -> str | list[Answer]:
    """What an input says."""
    if "answers" in given:
        return [Answer(**answer) for answer in given["answers"]]
    return str(given["text"])
