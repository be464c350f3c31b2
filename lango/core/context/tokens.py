"""The token estimate: offline, no vocabulary, a few microseconds a message.

Each UTF-8 byte weighs some 32nds of a token; the weights were fitted on 39 kinds of text against
five tokenizer families so that the estimate is rarely too low (docs/explanation/tokens.md).
"""

from __future__ import annotations

import re
import zlib
from typing import Final

from lango.core.messages.messages import Message

PER_MESSAGE: Final = 4


def _weights() -> bytes:
    """Weight of every byte value, in 1/32 token."""
    table = bytearray(17 for _ in range(256))  # other ASCII
    spans = [
        (0x61, 0x7A, 12),  # a-z
        (0x41, 0x5A, 28),  # A-Z
        (0x30, 0x39, 54),  # 0-9
        (0x20, 0x20, 2),  # space
        (0x09, 0x0D, 28),  # tab to carriage return
        (0x80, 0xBF, 0),  # continuation bytes: counted with their lead byte
        (0xC0, 0xDF, 47),
        (0xE0, 0xEF, 73),
        (0xE3, 0xED, 50),  # CJK, kana, hangul: shorter in tokens than other 3-byte scripts
        (0xF0, 0xFF, 95),
    ]
    for first, last, weight in spans:
        table[first : last + 1] = bytes([weight]) * (last - first + 1)
    return bytes(table)


_WEIGHTS: Final = _weights()
_PIECE: Final = 65_520 // max(_WEIGHTS)  # bytes whose weights fit half an Adler-32 sum


def _weight(data: bytes) -> int:
    """The sum of the bytes' weights.

    The low half of an Adler-32 sum is 1 plus the sum of the bytes. It takes a third of the time of
    `sum` on all but short texts, and every message is weighed.
    """
    weights = data.translate(_WEIGHTS)
    total = 0
    for start in range(0, len(weights), _PIECE):
        total += (zlib.adler32(weights[start : start + _PIECE]) & 0xFFFF) - 1
    return total


def text_weight(text: str) -> int:
    """The weight of a text in 1/32 token; weights of several texts add up."""
    return _weight(text.encode("utf-8", "surrogatepass"))


def tokens_of_weight(weight: int) -> int:
    """The estimate for a message whose texts weigh this much together."""
    return PER_MESSAGE + -(-weight // 32)


def estimate_tokens(text: str) -> int:
    """The estimated tokens of one message with this text."""
    return tokens_of_weight(text_weight(text))


def message_tokens(message: Message) -> int:
    """The estimated tokens of a message; a tool's output counts once."""
    outputs = [call.output for call in message.tool_calls if call.output]
    text = "" if message.is_tool and outputs else message.content
    weight = text_weight(text)
    for call in message.tool_calls:
        weight += text_weight(call.name) + text_weight(call.input) + text_weight(call.output)
    return tokens_of_weight(weight)


TEXT_TYPES: Final = ("text/", "application/json")
"""Prefixes of the media types that are text."""
_BY_KIND: Final = {"image": 1_600, "video": 1_600}
_PDF_PAGE: Final = 1_500
_PDF_PAGES: Final = re.compile(rb"/Type\s*/Page\b")
_AUDIO_SECOND: Final = 32
_AUDIO_BYTES_PER_SECOND: Final = 4_000  # a low bit rate: overestimates the seconds


def binary_tokens(mime_type: str | None, data: bytes | None) -> int:
    """The estimate for media: by its kind; for text media by its bytes."""
    kind = (mime_type or "").partition("/")[0]
    if mime_type == "application/pdf":
        return _PDF_PAGE * max(1, len(_PDF_PAGES.findall(data or b"")))
    if kind == "audio":
        return _AUDIO_SECOND * (1 + len(data or b"") // _AUDIO_BYTES_PER_SECOND)
    if (mime_type or "").startswith(TEXT_TYPES):
        return tokens_of_weight(_weight(data or b""))
    return _BY_KIND.get(kind, 1_600)
