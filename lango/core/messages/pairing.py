"""The last step before a request: gives every tool call exactly one result, directly after it.

Providers refuse a conversation in which a call has no result, a result has no call, or two calls
share an id. Histories have all of these: turns are interrupted, truncation starts anywhere, ids
are stripped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from lango.core.messages.call_ids import with_fallback_ids
from lango.core.messages.messages import Message, ToolCall

INTERRUPTED: Final = (
    '{"error":"interrupted","detail":"This call was interrupted before it gave a result. '
    'Whether it had any effect is unknown."}'
)
"""The result given to a call that has none."""
NO_RESULT: Final = "{}"


@dataclass(eq=False, slots=True)
class _Slot:
    """A call that waits for its result."""

    call: ToolCall
    id: str
    result: Message | None = None


@dataclass(slots=True)
class _Pairs:
    """Which result answers which call."""

    calls: dict[int, list[_Slot]] = field(default_factory=dict[int, list[_Slot]])
    """The slots of each message with calls, by its index."""
    owners: dict[tuple[int, int], _Slot] = field(default_factory=dict[tuple[int, int], _Slot])
    """The slot that each result answers, by the message's index and the result's index in it."""


def pair_calls(messages: Sequence[Message]) -> list[Message]:
    """The conversation with unique ids and each call's one result directly after it (idempotent).

    A call without a result gets INTERRUPTED, a result without a call is dropped, and the last of
    several results of one call is kept.
    """
    pairs = _matched(messages)
    used_ids: set[str] = set()
    paired: list[Message] = []
    for index, message in enumerate(messages):
        if message.is_tool:
            continue
        if not message.is_assistant:
            paired.append(replace(message, tool_calls=()) if message.tool_calls else message)
            continue
        slots = pairs.calls.get(index, [])
        for slot in slots:
            slot.id = _free_id(slot.id, used_ids)
            used_ids.add(slot.id)
        paired.append(_calling(message, slots))
        paired += [_answer(slot, message.author) for slot in slots]
    return paired


def with_call_ids(messages: Sequence[Message]) -> list[Message]:
    """Give every call and result an id: its own, `call_<name>`, or that of the call it answers.

    A result without an id is matched by position: to the first unanswered call of its name in the
    newest message that has one.
    """
    pairs = _matched(messages)
    identified: list[Message] = []
    for index, message in enumerate(messages):
        if all(call.id for call in message.tool_calls):
            identified.append(message)
            continue
        if index in pairs.calls:
            identified.append(_calling(message, pairs.calls[index]))
            continue
        fallback = _fallback_ids(message)
        calls = [
            call
            if call.id or not message.is_tool
            else replace(call, id=_owner_id(pairs, (index, number), fallback[number]))
            for number, call in enumerate(message.tool_calls)
        ]
        identified.append(replace(message, tool_calls=tuple(calls)))
    return identified


def _owner_id(pairs: _Pairs, key: tuple[int, int], fallback: str) -> str:
    owner = pairs.owners.get(key)
    return owner.id if owner else fallback


def _matched(messages: Sequence[Message]) -> _Pairs:
    pairs = _Pairs()
    for index, message in enumerate(messages):
        if message.is_tool:
            for number, result in enumerate(_results(message)):
                slot = _slot_of(result, pairs.calls)
                if slot is not None:
                    slot.result = result
                    pairs.owners[index, number] = slot
        elif message.is_assistant and message.tool_calls:
            ids = _fallback_ids(message)
            pairs.calls[index] = [
                _Slot(call, call_id) for call, call_id in zip(message.tool_calls, ids, strict=True)
            ]
    return pairs


def _fallback_ids(message: Message) -> list[str]:
    return with_fallback_ids((call.id, call.name) for call in message.tool_calls)


def _results(message: Message) -> Iterator[Message]:
    """One message for each result; a row of an older system is one result that names no call."""
    for call in message.tool_calls or (ToolCall("", ""),):
        is_single = len(message.tool_calls) <= 1
        output = call.output or (message.content if is_single else "") or NO_RESULT
        yield replace(
            message,
            role="tool",
            content=output,
            tool_calls=(replace(call, output=output),),
            media=message.media if is_single else (),
        )


def _slot_of(result: Message, calls: Mapping[int, Sequence[_Slot]]) -> _Slot | None:
    """The call that a result answers: by its id, or else by its name and position."""
    (answer,) = result.tool_calls
    if not answer.id:
        return _by_position(answer.name, calls, stripped=True) or _by_position(answer.name, calls)
    answered: _Slot | None = None
    for slot in _newest_first(calls):
        if slot.id == answer.id:
            if slot.result is None:
                return slot
            answered = answered or slot
    return answered  # a later result of a long-running call replaces the first


def _by_position(
    name: str, calls: Mapping[int, Sequence[_Slot]], *, stripped: bool = False
) -> _Slot | None:
    """The first open call of that name in the newest message with one; `stripped`: without id."""
    for slot in _newest_first(calls):
        matches = (not name or slot.call.name == name) and not (stripped and slot.call.id)
        if matches and slot.result is None:
            return slot
    return None


def _newest_first(calls: Mapping[int, Sequence[_Slot]]) -> Iterator[_Slot]:
    """All calls: those of the newest message first, in order within each message."""
    for index in reversed(tuple(calls)):
        yield from calls[index]


def _calling(message: Message, slots: Sequence[_Slot]) -> Message:
    calls = tuple(replace(slot.call, id=slot.id) for slot in slots)
    return message if calls == message.tool_calls else replace(message, tool_calls=calls)


def _answer(slot: _Slot, author: str) -> Message:
    result = slot.result
    if result is None:
        result = Message("tool", INTERRUPTED, (ToolCall("", "", output=INTERRUPTED),), author)
    (call,) = result.tool_calls
    return replace(result, tool_calls=(replace(call, id=slot.id, name=slot.call.name),))


def _free_id(preferred: str, used_ids: set[str]) -> str:
    if preferred not in used_ids:
        return preferred
    return next(free for number in count(2) if (free := f"{preferred}_{number}") not in used_ids)
