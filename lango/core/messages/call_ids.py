"""Ids for tool calls that have none."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from lango.core.ids import MAX_ID_LENGTH, as_id

_ROOM = MAX_ID_LENGTH - 12  # leaves room for a number after it


def with_fallback_ids(calls: Iterable[tuple[str | None, str | None]]) -> list[str]:
    """The id of each (id, name) of one message: its own, or `call_<name>`, `call_<name>_2`, …

    Calls and responses are numbered in the same way, so that the nth id-less response of a name
    answers the nth id-less call of that name.
    """
    pairs = list(calls)
    used_ids = {call_id for call_id, _ in pairs if call_id}
    ids: list[str] = []
    for call_id, name in pairs:
        ids.append(call_id or _free_id(as_id(f"call_{name or ''}", _ROOM), used_ids))
        used_ids.add(ids[-1])
    return ids


def _free_id(fallback: str, used_ids: set[str]) -> str:
    """The fallback, with a number if another call of the message has it."""
    if fallback not in used_ids:
        return fallback
    return next(numbered for n in count(2) if (numbered := f"{fallback}_{n}") not in used_ids)
