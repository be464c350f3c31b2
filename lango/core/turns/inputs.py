"""The stored input of a turn: a user's message with files, or a person's answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from lango.core.turns.events import Answer
from lango.core.values import JsonObject, storable_json, storable_text

_TITLE: Final = 60
_TITLE_SOURCE: Final = 1_000  # characters of a message, which may be very long


@dataclass(frozen=True, slots=True)
class FileRef:
    """A session file attached to a message: the version at the time of submission."""

    name: str
    version: int


def input_of(
    content: str | Sequence[Answer],
    files: Sequence[FileRef] = (),
    parts: Sequence[JsonObject] = (),
) -> JsonObject:
    """The input of a turn with this message or these answers.

    `parts` are ADK parts: the agent gets them instead of the message's text.
    """
    if isinstance(content, str):
        with_files = {"files": [asdict(file) for file in files]} if files else {}
        with_parts = {"parts": storable_json(list(parts))} if parts else {}
        return {"text": content, **with_files, **with_parts}
    return {"answers": [storable_json(asdict(answer)) for answer in content]}


def title_of(message: str) -> str:
    """The title of a session that begins with a message: the message on one short line."""
    line = " ".join(storable_text(message[:_TITLE_SOURCE]).split())
    return line if len(line) <= _TITLE else f"{line[: _TITLE - 1].rstrip()}…"


def message_or_answers(turn_input: JsonObject) -> str | list[Answer]:
    """The message or the answers in an input."""
    if "answers" in turn_input:
        return [Answer(**answer) for answer in turn_input["answers"]]
    return str(turn_input["text"])


def files_in(turn_input: JsonObject) -> list[FileRef]:
    """The files attached to an input."""
    return [FileRef(**file) for file in turn_input.get("files", ())]


def parts_in(turn_input: JsonObject) -> list[JsonObject]:
    """The ADK parts in an input."""
    return list(turn_input.get("parts", ()))


def as_submitted(turn_input: JsonObject) -> JsonObject:
    """An input as the client submitted it: files by name, without the resolved version.

    A repeated request therefore equals the first, even if a file has a newer version by then.
    """
    if "files" not in turn_input:
        return turn_input
    return turn_input | {"files": [file.name for file in files_in(turn_input)]}
