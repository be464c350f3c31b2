"""Storable values: text and JSON that any database can keep, converted in one documented way.

- text: NUL and lone surrogates become U+FFFD;
- numbers: NaN, the infinities and integers of more than 4,299 digits become null;
- keys become text, as JSON requires; of two keys with the same text the later wins;
- bytes become base64, sets and tuples lists, dates ISO 8601, anything else its text;
- nesting deeper than MAX_DEPTH is cut there, leaving TOO_DEEP in its place.
"""

from __future__ import annotations

import base64
import datetime
import enum
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Final, NoReturn, cast

JsonObject = dict[str, Any]

MAX_DEPTH: Final = 64
TOO_DEEP: Final = "[lango: nested deeper than 64 levels]"
MAX_INTEGER: Final = 10**4_299
"""Python by default neither reads nor writes longer integers as text."""
_WATCH_FROM: Final = (
    12  # levels before the check for cycles: few values are deeper, and few cycles grow until then
)
REPLACEMENT: Final = "\ufffd"

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def storable_text(text: str) -> str:
    """The text itself if any database can keep it, else with U+FFFD for NUL and surrogates."""
    if text.isascii():
        return text.replace("\x00", REPLACEMENT) if "\x00" in text else text
    return _UNSTORABLE.sub(REPLACEMENT, text)


def joined(pieces: Iterable[str]) -> str:
    """The pieces as one text, in which surrogates that were in two pieces are one character."""
    text = "".join(pieces)
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def storable_json(value: Any, depth: int = 0, within: frozenset[int] = frozenset()) -> Any:
    """The value itself (the same object) if it is storable JSON, else a storable copy.

    `within` are the containers around a deep value; they detect cycles.
    """
    kind = value.__class__
    if value is None or kind is bool:
        return value
    if kind is str:
        return storable_text(value)
    if kind is int:
        return value if -MAX_INTEGER < value < MAX_INTEGER else None
    if kind is float:
        return value if math.isfinite(value) else None
    if depth >= MAX_DEPTH or id(value) in within:
        return TOO_DEEP
    if depth >= _WATCH_FROM:
        within |= {id(value)}
    if kind is dict:
        return _storable_dict(value, depth, within)
    if kind is list:
        return _storable_list(value, depth, within)
    return storable_json(_plain(value), depth + 1, within)


def _storable_dict(value: dict[Any, Any], depth: int, within: frozenset[int]) -> dict[str, Any]:
    changed = False
    result: dict[str, Any] = {}
    for key, item in value.items():
        new_key = storable_text(key if type(key) is str else _key_text(key))
        new_item = storable_json(item, depth + 1, within)
        changed = changed or new_key is not key or new_item is not item
        result[new_key] = new_item
    return result if changed else value


def _storable_list(value: list[Any], depth: int, within: frozenset[int]) -> list[Any]:
    result = [storable_json(item, depth + 1, within) for item in value]
    is_unchanged = all(new is old for new, old in zip(result, value, strict=True))
    return value if is_unchanged else result


def _key_text(key: Any) -> str:
    """A key as json.dumps would write it; other types as their text."""
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bool) or key is None:
        return json.dumps(key)
    return str(_plain(key))


def _dumped(value: Any) -> Any:
    """The dump of a pydantic model (or anything with `model_dump`); else the value's text."""
    dump = cast("Callable[..., Any] | None", getattr(value, "model_dump", None))
    if callable(dump) and not isinstance(value, type):
        try:
            return dump(mode="python", exclude_none=True)
        except Exception:  # noqa: BLE001 - a foreign object must never make a result unstorable
            return _text_of(value)
    return _text_of(value)


def _text_of(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - see above
        return f"[{type(value).__name__}]"


_PLAIN: Final[list[tuple[type | tuple[type, ...], Callable[[Any], Any]]]] = [
    (enum.Enum, lambda value: value.value),
    (str, lambda value: str.__str__(value)),
    (int, int),
    (float, float),
    ((bytes, bytearray, memoryview), lambda value: base64.b64encode(bytes(value)).decode()),
    ((datetime.datetime, datetime.date, datetime.time), lambda value: value.isoformat()),
    (datetime.timedelta, lambda value: value.total_seconds()),
    (Mapping, dict),
    (Set, lambda value: sorted(value, key=_sort_text)),
    (tuple, list),
    (list, list),
]


def _sort_text(item: Any) -> str:
    return f"{type(item).__name__}:{_text_of(item)}"


def _plain(value: Any) -> Any:
    """One step from a foreign value towards JSON."""
    for kinds, convert in _PLAIN:
        if isinstance(value, kinds):
            return convert(value)
    return _dumped(value)


# Created once: `json.dumps` with options creates one per call, at twice the cost of a short text.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def json_text(value: Any) -> str:
    """Compact JSON of a storable value, readable in SQL (no \\u escapes)."""
    return _ENCODER.encode(value)


def json_value(text: str) -> Any:
    """The value of a JSON text."""
    return json.loads(text)


def strict_json_value(text: str | bytes) -> Any:
    """The value; ValueError or RecursionError if the text is no JSON, which has no NaN."""
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def is_deeper(value: Any, depth: int) -> bool:
    """Whether lists and objects are nested deeper than this; checks level by level."""
    level = [value]
    for _ in range(depth):
        level = [item for outer in level for item in _items(outer)]
    return any(isinstance(item, dict | list) for item in level)


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast(JsonObject, value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def json_object(text: str) -> JsonObject:
    """The object in a JSON text; anything else, also broken JSON, becomes {"result": …}."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {"result": text}
    return cast(JsonObject, value) if isinstance(value, dict) else {"result": value}
