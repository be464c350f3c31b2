"""Hostile payloads: values from users, models and tools that databases or JSON cannot hold."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.cache_metadata import CacheMetadata
from google.genai import types

from lango.testing.values import HOSTILE_TEXTS, Colour, Opaque, ToolPoint, ToolReply, nested

Make = Callable[[Any], dict[str, Any]]
"""Maps a hostile value to the fields of an event that has it in one of them."""

_numbers = count()  # a state key for each value, so that none hides another

FIFTY_MEGABYTES: Final = 50 * 1024 * 1024


class Silent:
    """An object whose `repr` raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __str__ = __repr__


class Undecided:
    """An object whose truth value raises, like a NumPy array's."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")

    def __repr__(self) -> str:
        return "array([1, 2])"


def _cycle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = value
    return value


def _content(**part: Any) -> dict[str, Any]:
    return {"content": types.Content(role="model", parts=[types.Part(**part)])}


def _call(**fields: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"id": "call_1", "name": "search", "args": {}, **fields}
    return _content(function_call=types.FunctionCall(**values))


def _response(**fields: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"id": "call_1", "name": "search", "response": {}, **fields}
    return _content(function_response=types.FunctionResponse(**values))


def _state(delta: dict[str, Any]) -> dict[str, Any]:
    return {**_content(text="with state"), "actions": EventActions(state_delta=delta)}


def _cached(expiry: float) -> dict[str, Any]:
    cache = CacheMetadata(
        fingerprint="f", contents_count=1, cache_name="c", invocations_used=1, expire_time=expiry
    )
    return {**_content(text="hello"), "cache_metadata": cache}


TEXT_FIELDS: Final[dict[str, Make]] = {
    "text": lambda value: _content(text=value),
    "thought": lambda value: _content(text=value, thought=True),
    "call name": lambda value: _call(name=value),
    "argument key": lambda value: _call(args={value: 1}),
    "response key": lambda value: _response(response={value: 1}),
    "state key": lambda value: _state({value: 1}),
    "user state key": lambda value: _state({f"user:{value}": 1}),
    "app state key": lambda value: _state({f"app:{value}": 1}),
    "author": lambda value: {**_content(text="hello"), "author": value},
    "branch": lambda value: {**_content(text="hello"), "branch": value},
    "error": lambda value: {"error_code": value, "error_message": value},
    "content role": lambda value: {
        "content": types.Content(role=value, parts=[types.Part(text="hello")])
    },
    "file": lambda value: _content(file_data=types.FileData(file_uri=value, mime_type=value)),
    "transfer": lambda value: {"actions": EventActions(transfer_to_agent=value)},
    "artifact name": lambda value: {"actions": EventActions(artifact_delta={value: 1})},
}

JSON_FIELDS: Final[dict[str, Make]] = {
    "argument": lambda value: _call(args={"value": value}),
    "response": lambda value: _response(response={"value": value}),
    "state": lambda value: _state({f"value {next(_numbers)}": value}),
    "user state": lambda value: _state({f"user:value {next(_numbers)}": value}),
    "app state": lambda value: _state({f"app:value {next(_numbers)}": value}),
    "custom metadata": lambda value: {**_content(text="hello"), "custom_metadata": {"v": value}},
    "output": lambda value: {"output": value},
    "agent state": lambda value: {"actions": EventActions(agent_state={"value": value})},
    "part metadata": lambda value: _content(text="hello", part_metadata={"value": value}),
}

ID_FIELDS: Final[dict[str, Make]] = {
    "event id": lambda value: {**_content(text="hello"), "id": value},
    "invocation id": lambda value: {**_content(text="hello"), "invocation_id": value},
    "call id": lambda value: _call(id=value),
    "response id": lambda value: _response(id=value),
}

JSON_VALUES: Final[dict[str, Callable[[], Any]]] = {
    **{f"text {text!a:.24}": (lambda text=text: text) for text in HOSTILE_TEXTS},
    "NaN": lambda: float("nan"),
    "Infinity": lambda: [float("inf"), float("-inf")],
    "large float": lambda: 1e22,
    "small float": lambda: 5e-324,
    "whole float": lambda: 1.0,
    "integer of 31 digits": lambda: 10**30,
    "integer of 5,000 digits": lambda: 10**5000,
    "nesting 63": lambda: nested(63),
    "nesting 64": lambda: nested(64),
    "nesting 65": lambda: nested(65),
    "nesting 300": lambda: nested(300),
    "nesting 100,000": lambda: nested(100_000),
    "a cycle": _cycle,
    "bytes": lambda: b"\x00\xff\x80",
    "bytearray": lambda: bytearray(b"\x00\xff"),
    "memoryview": lambda: memoryview(b"\x00\xff"),
    "set": lambda: {"b", "a", 3},
    "frozenset": lambda: frozenset({1, 2}),
    "tuple": lambda: (1, ("two", None)),
    "datetime": lambda: datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC),
    "date and time": lambda: [datetime.date(2026, 1, 2), datetime.time(3, 4)],
    "timedelta": lambda: datetime.timedelta(days=1, microseconds=1),
    "decimal": lambda: decimal.Decimal("1.10"),
    "int keys": lambda: {1: "one", "1": "also one", None: 0, False: 1, 2.5: 2, (1, 2): 3},
    "bytes key": lambda: {b"\xff": 1},
    "enum": lambda: Colour.RED,
    "dataclass": lambda: ToolPoint(),
    "pydantic model": lambda: ToolReply(score=float("nan")),
    "object": lambda: Opaque(),
    "object without text": lambda: Silent(),
    "object without truth": lambda: Undecided(),
    "empty bytes, set and tuple": lambda: [b"", set[str](), ()],
    "an empty tuple": lambda: (),
    "no time at all": lambda: datetime.timedelta(0),
    "class and function": lambda: [Opaque, len],
    "exception": lambda: ValueError("bad \x00"),
    "generator": lambda: (number for number in range(3)),
}

IDS: Final[dict[str, str]] = {
    "empty": "",
    "129 characters": "i" * 129,
    "256 characters": "i" * 256,
    "257 characters": "i" * 257,
    "256 wide characters": "👍" * 256,
    "10,000 characters": "i" * 10_000,
    "a path": "../../etc/passwd",
    "spaces": "  two  words  ",
    "percent": "a%2Fb?c#d",
    "quotes": "'; drop table messages; --",
    "NUL": "a\x00b",
    "newline": "a\nb",
    "escape": "\x1b[31m",
    "C1 control": "a\x85b",
    "lone surrogate": "a\ud800",
    "emoji": "👩‍👩‍👧",
    "right to left": "\u202eשלום",
    "composed": "é",
    "decomposed": "e\u0301",
}


def _odd_events() -> dict[str, Callable[[], dict[str, Any]]]:
    """Payloads that are not one value in one field."""
    return {
        "content without parts": lambda: {"content": types.Content(role="model")},
        "content with no parts": lambda: {"content": types.Content(role="model", parts=[])},
        "an empty part": lambda: _content(),
        "an empty text": lambda: _content(text=""),
        "no content, nothing": lambda: {},
        "NaN timestamp": lambda: {**_content(text="hello"), "timestamp": float("nan")},
        "infinite timestamp": lambda: {**_content(text="hello"), "timestamp": float("inf")},
        "timestamp beyond calendars": lambda: {**_content(text="hello"), "timestamp": 1e300},
        "timestamp before 1970": lambda: {**_content(text="hello"), "timestamp": -1e11},
        "50 MB tool output": lambda: _response(response={"result": "x" * FIFTY_MEGABYTES}),
        "50 MB of inline data": lambda: _content(
            inline_data=types.Blob(mime_type="video/mp4", data=b"\x00" * FIFTY_MEGABYTES)
        ),
        "5 MB of text": lambda: _content(text="x" * 5_000_000),
        "1,000 parts": lambda: {
            "content": types.Content(role="model", parts=[types.Part(text="x")] * 1000)
        },
        "1,000 state keys": lambda: _state({f"key{number}": number for number in range(1000)}),
        "a cache that expires at NaN": lambda: _cached(float("nan")),
        "a cache that never expires": lambda: _cached(float("inf")),
        "a rewind to nowhere": lambda: {
            "actions": EventActions(rewind_before_invocation_id="never", state_delta={"kept": 1})
        },
        "two calls with one id": lambda: {
            "content": types.Content(
                role="model",
                parts=[types.Part(function_call=types.FunctionCall(id="x", name="f"))] * 2,
            )
        },
    }


def payloads() -> Iterator[tuple[str, Callable[[], Event]]]:
    """Every hostile event by name, as a function that creates it."""
    texts = {f"{text!a:.24}": (lambda text=text: text) for text in HOSTILE_TEXTS}
    ids = {name: (lambda text=text: text) for name, text in IDS.items()}
    for fields, values in ((TEXT_FIELDS, texts), (JSON_FIELDS, JSON_VALUES), (ID_FIELDS, ids)):
        for field, make in fields.items():
            for value_name, value in values.items():
                name = f"{field}: {value_name}"
                yield name, _event(name, make, value)
    for name, event_fields in _odd_events().items():
        yield name, _event(name, lambda value: value, event_fields)


def _event(name: str, make: Make, value: Callable[[], Any]) -> Callable[[], Event]:
    event_id = f"event of {name}"

    def event() -> Event:
        values: dict[str, Any] = {"id": event_id, "invocation_id": "turn-1", "author": "agent"}
        fields = {**values, **make(value())}
        event = Event(**fields)
        event.id = fields["id"]  # ADK fills an empty id at construction only
        return event

    return event
