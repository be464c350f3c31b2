"""Strict comparison of types and values, with the paths of the differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel

_SCALARS = (str, bytes, int, float, type(None))


def differences(expected: Any, actual: Any, path: str = "") -> list[str]:
    """The differences, one line each; 1, 1.0 and True count as three values."""
    return list(_differences(expected, actual, path))


def _differences(expected: Any, actual: Any, path: str) -> Iterator[str]:
    if type(expected) is not type(actual):
        yield f"{path or '.'}: {_kind(expected)} became {_kind(actual)}"
    elif isinstance(expected, BaseModel):
        yield from _of_mappings(_fields(expected), _fields(actual), path)
    elif isinstance(expected, Mapping):
        yield from _of_mappings(cast("Mapping[Any, Any]", expected), actual, path)
    elif isinstance(expected, Sequence) and not isinstance(expected, _SCALARS):
        yield from _of_sequences(cast("Sequence[Any]", expected), actual, path)
    elif expected != actual and not _both_nan(expected, actual):
        yield f"{path or '.'}: {expected!r:.200} became {actual!r:.200}"


def _both_nan(expected: Any, actual: Any) -> bool:
    """Whether both are NaN, which is not equal to itself but counts as the same value."""
    return expected != expected and actual != actual


def _fields(model: BaseModel) -> dict[str, Any]:
    """Fields and extras; a field explicitly set to its default is no difference."""
    return {**model.__dict__, **(model.model_extra or {})}


def _of_mappings(
    expected: Mapping[Any, Any], actual: Mapping[Any, Any], path: str
) -> Iterator[str]:
    for key in [*expected, *(key for key in actual if key not in expected)]:
        key_path = f"{path}.{key}"
        if key not in actual:
            yield f"{key_path}: lost {expected[key]!r:.200}"
        elif key not in expected:
            yield f"{key_path}: appeared as {actual[key]!r:.200}"
        else:
            yield from _differences(expected[key], actual[key], key_path)


def _of_sequences(expected: Sequence[Any], actual: Sequence[Any], path: str) -> Iterator[str]:
    if len(expected) != len(actual):
        yield f"{path}: {len(expected)} items became {len(actual)}"
        return
    for index, (old, new) in enumerate(zip(expected, actual, strict=True)):
        yield from _differences(old, new, f"{path}[{index}]")


def _kind(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.200}"
