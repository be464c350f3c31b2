"""Ids, names and arguments of tool calls in the forms that provider APIs accept."""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Callable, Iterable
from typing import Final

from lango.core.values import json_object, json_text

_LETTERS: Final = string.digits + string.ascii_letters
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_NOT_FIRST: Final = frozenset(string.digits + "-")  # Gemini refuses such names
_NAME_ROOM: Final = 64


class ApiCallIds:
    """Call ids: kept if the API accepts them, else replaced deterministically."""

    def __init__(self, legal: str, replacement: Callable[[bytes], str]) -> None:
        self._legal = re.compile(legal)
        self._replacement = replacement

    def __call__(self, call_id: str) -> str:
        if self._legal.fullmatch(call_id):
            return call_id
        return self._replacement(hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).digest())


def _nine(digest: bytes) -> str:
    number = int.from_bytes(digest, "big")
    return "".join(_LETTERS[number // 62**exponent % 62] for exponent in range(9))


# The vendors' SDKs document no rule; these are the ones that their servers enforce.
CHAT_IDS: Final = ApiCallIds(r"[\x21-\x7e]{1,40}", lambda digest: f"call_{digest.hex()[:24]}")
RESPONSES_IDS: Final = ApiCallIds(r"[\x21-\x7e]{1,64}", lambda digest: f"call_{digest.hex()[:24]}")
ANTHROPIC_IDS: Final = ApiCallIds(
    r"[a-zA-Z0-9_-]{1,64}", lambda digest: f"toolu_{digest.hex()[:24]}"
)
NINE_LETTER_IDS: Final = ApiCallIds(r"[a-zA-Z0-9]{9}", _nine)


class ToolNames:
    """Maps tool names to valid ones (letters, digits, _ and -) for an API, and back."""

    def __init__(self, declared: Iterable[str]) -> None:
        self._wire: dict[str, str] = {}
        self._real: dict[str, str] = {}
        for name in sorted(set(declared), key=lambda name: (wire_name(name) != name, name)):
            legal, number = wire_name(name), 1
            while legal in self._real:
                number += 1
                legal = f"{wire_name(name)[: _NAME_ROOM - 4]}_{number}"
            self._wire[name], self._real[legal] = legal, name

    def wire(self, name: str) -> str:
        """The name for the API; an undeclared name is made valid too."""
        return self._wire.get(name) or wire_name(name)

    def real(self, name: str) -> str:
        """The declared name."""
        return self._real.get(name, name)


def arguments_text(text: str) -> str:
    """The arguments of a call as a JSON object: unchanged if they are one."""
    if not text:
        return "{}"
    value = json_object(text)
    return text if text.lstrip().startswith("{") and value != {"result": text} else json_text(value)


def wire_name(name: str) -> str:
    """A name without the characters that APIs refuse."""
    legal = _ILLEGAL.sub("_", name)
    if legal[:1] in _NOT_FIRST:
        legal = f"_{legal}"
    return legal[:_NAME_ROOM] or "unknown"
