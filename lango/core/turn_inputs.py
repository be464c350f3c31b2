"""What a turn is told, as its row keeps it: a user's message with files, or a person's answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from lango.core.turns import Answer
from lango.core.values import JsonObject, storable_json


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file of the session that goes with a message: the version there was when it was said."""

    name: str
    version: int


def input_of(said: str | Sequence[Answer], files: Sequence[FileRef] = ()) -> JsonObject:
    """The input of a turn that begins with this."""
    if isinstance(said, str):
        shown = {"files": [asdict(file) for file in files]} if files else {}
        return {"text": said, **shown}
    return {"answers": [storable_json(asdict(answer)) for answer in said]}


def said_in(given: JsonObject) -> str | list[Answer]:
    """What an input says."""
    if "answers" in given:
        return [Answer(**answer) for answer in given["answers"]]
    return str(given["text"])


def files_in(given: JsonObject) -> list[FileRef]:
    """The files that go with an input."""
    return [FileRef(**file) for file in given.get("files", ())]


def as_asked(given: JsonObject) -> JsonObject:
    """An input as whoever handed it in has said it: files by name, which version was found since.

    A request that is repeated means the same, though a newer version has come meanwhile.
    """
    if "files" not in given:
        return given
    return given | {"files": [file.name for file in files_in(given)]}
