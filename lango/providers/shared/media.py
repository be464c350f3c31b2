"""Images and files in the forms that provider APIs require."""

from __future__ import annotations

import base64
from typing import Final

from lango.core.context.tokens import TEXT_TYPES
from lango.core.messages.messages import Media

_WEB: Final = ("http://", "https://")


def base64_text(media: Media) -> str:
    """The bytes in base64."""
    return base64.b64encode(media.data).decode("ascii")


def url(media: Media) -> str:
    """A data URL, or the media's web address; empty for other addresses."""
    if media.data:
        return f"data:{media.mime_type};base64,{base64_text(media)}"
    return media.uri if media.uri.startswith(_WEB) else ""


def kind(media: Media) -> str:
    """Its kind: image, audio, text, …"""
    return media.mime_type.partition("/")[0]


def text_of(media: Media) -> str | None:
    """The text of a text file; None for other media."""
    if not media.mime_type.startswith(TEXT_TYPES) or not media.data:
        return None
    return media.data.decode("utf-8", "replace")


def file_name(media: Media) -> str:
    """The media's name, or one made from its type."""
    return media.name or f"file.{media.mime_type.partition('/')[2] or 'bin'}"


def note(media: Media) -> str:
    """The placeholder text for media that an API cannot carry."""
    name = media.name or media.uri or "a file"
    return f"[{name} ({media.mime_type}) cannot be shown to this model]"
