"""Hypothesis strategies for text, numbers and JSON as real tools and models send them."""

from __future__ import annotations

import datetime
import decimal
import enum
import pathlib
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from pydantic import BaseModel

T = TypeVar("T")

HOSTILE_TEXTS = (
    "\x00",
    "before\x00after",
    "\ud800",
    "cut\udfff",
    "\ud83d\ude00",  # a pair of lone surrogates, not the emoji
    "😀👩‍👩‍👧🏽",
    "שלום \u202eمرحبا\u202c",
    "e\u0301é",
    "\ufeffbom\uffff",
    "line\u2028para\u2029\r\n\t\x1b[31m\x7f\x85",
    "\\u0000 \\ud800 \\",
    "'; drop table messages; --",
    "%s {0} ${HOME} :name",
    "null",
    "123",
    "[1, 2]",
    '{"result": 1}',
    " ",
    "",
)


class Colour(enum.Enum):
    """A plain enum as a tool's result."""

    RED = "red"


class Level(enum.IntEnum):
    """An enum that is also an int."""

    HIGH = 3


class ToolReply(BaseModel):
    """A pydantic model as a tool's result."""

    text: str = "ok"
    score: float | None = None


@dataclass(frozen=True)
class ToolPoint:
    """A dataclass as a tool's result."""

    x: int = 1
    y: int = 2


class Opaque:
    """An object with nothing but a text form."""

    def __repr__(self) -> str:
        return "<opaque>"


def weighted(*choices: tuple[int, SearchStrategy[T]]) -> SearchStrategy[T]:
    """One of several strategies, chosen by weight; shrinks to the first."""
    table = [strategy for weight, strategy in choices for _ in range(weight)]

    @st.composite
    def one_of_them(draw: DrawFn) -> T:
        return draw(table[draw(st.integers(0, len(table) - 1))])

    return one_of_them()


def instances(cls: type[T], **fields: SearchStrategy[Any]) -> SearchStrategy[T]:
    """Instances of a class from only these keyword arguments (`builds` would add others)."""

    def instance(values: dict[str, Any]) -> T:
        return cls(**values)

    return st.fixed_dictionaries(fields).map(instance)


def words() -> SearchStrategy[str]:
    """Ordinary text of any language: no NUL, no surrogates."""
    samples = ["hello", "Wie ist das Wetter?", "天気はどう?", "كيف الحال", "ok 👍", "x = 1\ny = 2"]
    alphabet = st.characters(codec="utf-8", exclude_characters="\x00")
    return weighted((4, st.sampled_from(samples)), (1, st.text(alphabet, max_size=30)))


def texts() -> SearchStrategy[str]:
    """Any text that a Python string can hold, mostly ordinary text."""
    anything = st.characters(exclude_categories=())
    return weighted(
        (6, words()),
        (1, st.sampled_from(HOSTILE_TEXTS)),
        (1, st.text(anything, max_size=12)),
    )


def integers() -> SearchStrategy[int]:
    """Integers, sometimes beyond 64 bits."""
    return weighted((4, st.integers(0, 10_000)), (1, st.integers()), (1, st.just(10**30)))


def floats() -> SearchStrategy[float]:
    """Any float, including NaN and the infinities."""
    extreme = st.sampled_from([1e22, float("nan"), float("inf"), float("-inf")])
    return weighted((4, st.floats(-1000, 1000)), (1, st.floats()), (1, extreme))


def blobs() -> SearchStrategy[bytes]:
    """Bytes, including sizes around the limit above which they are stored outside the row."""
    sizes = st.sampled_from([8191, 8192, 8193, 20_000])
    return weighted((8, st.binary(max_size=40)), (1, sizes.map(lambda size: b"\xff" * size)))


def plain_json() -> SearchStrategy[Any]:
    """JSON that any database keeps unchanged."""
    leaves: SearchStrategy[Any] = st.one_of(
        words(), st.integers(-1000, 1000), st.booleans(), st.none(), st.floats(-1e6, 1e6)
    )
    return st.recursive(leaves, _containers(words()), max_leaves=5)


def any_values() -> SearchStrategy[Any]:
    """Values that Python code may put where ADK says `Any`: mostly JSON, sometimes others."""
    return weighted(
        (4, plain_json()),
        (2, st.recursive(_leaves(), _foreign_containers, max_leaves=6)),
        (1, _foreign()),
        (1, st.integers(60, 70).map(nested)),
        (1, st.just(300).map(nested)),
        (1, st.builds(_cyclic)),
    )


def any_objects() -> SearchStrategy[dict[str, Any]]:
    """A dict with text keys and any values: arguments, responses, metadata."""
    big = st.just(256 * 1024 + 1).map(lambda size: {"result": "x" * size})
    return weighted(
        (6, st.dictionaries(words(), plain_json(), max_size=3)),
        (6, st.dictionaries(texts(), any_values(), max_size=3)),
        (1, st.sampled_from([64, 65, 300]).map(lambda depth: {"deep": nested(depth)})),
        (1, big),
    )


def nested(depth: int) -> Any:
    """Alternating lists and dicts, `depth` levels deep."""
    value: Any = "bottom"
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


def _cyclic() -> Any:
    value: dict[str, Any] = {"self": None}
    value["self"] = value
    return value


def _containers(keys: SearchStrategy[str]) -> Any:
    def extend(inner: SearchStrategy[Any]) -> SearchStrategy[Any]:
        return st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)

    return extend


def _foreign_containers(inner: SearchStrategy[Any]) -> SearchStrategy[Any]:
    keys: SearchStrategy[Any] = st.one_of(texts(), st.integers(-3, 3), st.booleans(), st.none())
    return st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(texts(), inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
    )


def _leaves() -> SearchStrategy[Any]:
    return weighted((3, texts()), (2, integers()), (2, floats()), (1, st.none()), (1, _foreign()))


def _foreign() -> SearchStrategy[Any]:
    """Values that JSON cannot represent."""
    moments = st.sampled_from(
        [
            datetime.datetime(2026, 1, 2, 3, 4, 5, 678901),
            datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
            datetime.date(2026, 1, 2),
            datetime.time(3, 4),
            datetime.timedelta(seconds=1.5),
        ]
    )
    objects = st.sampled_from(
        [
            Colour.RED,
            Level.HIGH,
            ToolReply(),
            ToolPoint(),
            Opaque(),
            Opaque,
            len,
            ValueError("bad"),
            range(3),
        ]
    )
    scalars: SearchStrategy[Any] = st.sampled_from(
        [
            decimal.Decimal("1.10"),
            decimal.Decimal("NaN"),
            uuid.UUID(int=7),
            pathlib.PurePosixPath("a/b"),
            2 + 3j,
            float("nan"),
            float("inf"),
            float("-inf"),
            -0.0,
        ]
    )
    containers: SearchStrategy[Any] = st.one_of(
        st.frozensets(st.integers(0, 9), max_size=3),
        st.sets(words(), max_size=3),
        st.builds(lambda: OrderedDict([(1, "one"), ("1", "also one")])),
        st.builds(lambda: bytearray(b"\x00\xff")),
    )
    return st.one_of(st.binary(max_size=8), moments, objects, scalars, containers)
