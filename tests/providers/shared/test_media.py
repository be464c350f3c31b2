"""Files on every wire: each is shown, told as text, or said to be missing; never refused."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from lango.core.context.tokens import TEXT_TYPES
from lango.core.messages.file_types import FILE_TYPES
from lango.core.messages.messages import Media, Message
from lango.core.values import JsonObject
from lango.providers import anthropic, gemini, openai_chat, openai_responses
from lango.providers.base import ModelRequest
from lango.providers.shared import media

WIRES: dict[str, Callable[[ModelRequest], JsonObject]] = {
    "anthropic": anthropic.encode_request,
    "gemini": gemini.encode_request,
    "openai_chat": openai_chat.encode_request,
    "openai_responses": openai_responses.encode_request,
}
UNSEEN = {
    "anthropic": {"audio/mpeg", "audio/wav"},
    "gemini": {"image/gif"},
    "openai_chat": set[str](),
    "openai_responses": {"audio/mpeg", "audio/wav"},
}
"""What no model behind the wire takes."""


def texts_in(value: Any) -> list[str]:
    """Every text of a request, at whatever depth."""
    if isinstance(value, dict):
        return [text for each in cast("JsonObject", value).values() for text in texts_in(each)]
    if isinstance(value, list | tuple):
        return [text for each in cast("list[Any]", value) for text in texts_in(each)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", FILE_TYPES)
def test_whatever_may_be_uploaded_can_be_sent(wire: str, kind: str) -> None:
    file = Media(kind, b'{"some": "data"}', name="a.file")
    request = ModelRequest("model", [Message("user", "What is this?", media=(file,))])
    text = texts_in(WIRES[wire](request))
    assert "What is this?" in text
    assert (media.note(file) in text) is (kind in UNSEEN[wire])
    assert ('{"some": "data"}' in text) is kind.startswith(TEXT_TYPES)


def test_a_note_says_what_is_missing() -> None:
    file = Media("audio/mpeg", b"x", name="talk.mp3")
    assert media.note(file) == "[talk.mp3 (audio/mpeg) cannot be shown to this model]"
