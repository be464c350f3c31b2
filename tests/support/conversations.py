"""Realistic conversations, including broken ones, and a check for valid ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

from lango.core.messages.messages import Media, Message, Reasoning, ToolCall

NAMES = ("look", "search", "call_look", "read_file")
WORDS = ("the", "quick", "日本語", "👩‍👧 emoji", "12345", "MIXED Case", "\n", '{"a": [1]}', "नमस्ते")


def problems(messages: Sequence[Message]) -> list[str]:
    """The faults in the pairing of calls and results, each of which any provider would refuse."""
    faults: list[str] = []
    seen: set[str] = set()
    waiting: list[ToolCall] = []
    for index, message in enumerate(messages):
        if message.is_tool:
            faults += _result_problems(index, message, waiting)
            waiting = waiting[1:]
            continue
        faults += [f"{index}: {call.id} has no result after it" for call in waiting]
        waiting = list(message.tool_calls)
        if waiting and not message.is_assistant:
            faults.append(f"{index}: a {message.role} message calls tools")
        ids = [call.id for call in waiting]
        faults += [f"{index}: a call without an id" for call_id in ids if not call_id]
        if len(set(ids)) < len(ids) or seen.intersection(ids):
            faults.append(f"{index}: an id is not unique")
        seen.update(ids)
    return faults + [f"end: {call.id} has no result" for call in waiting]


def _result_problems(index: int, message: Message, waiting: Sequence[ToolCall]) -> list[str]:
    if len(message.tool_calls) != 1:
        return [f"{index}: {len(message.tool_calls)} results in a message"]
    (result,) = message.tool_calls
    if not waiting:
        return [f"{index}: {result.id} answers no call"]
    if (result.id, result.name) != (waiting[0].id, waiting[0].name):
        return [f"{index}: {result.id} stands where {waiting[0].id} should"]
    return [] if result.output else [f"{index}: {result.id} has no output"]


SOME_THOUGHTS = tuple(
    Reasoning("let me see", provider, "some-model", opaque)
    for provider in ("openai", "anthropic", "gemini", "scripted", "")
    for opaque in ("", "c2VhbGVk")
)


def random_conversation(
    draw: Random, turns: int = 8, thoughts: Sequence[Reasoning] = SOME_THOUGHTS
) -> list[Message]:
    """A history of some turns with the damage of crashes, truncation and careless models."""
    history: list[Message] = []
    for _ in range(draw.randint(0, turns)):
        history += _turn(draw, thoughts)
    for _ in range(draw.choice((0, 0, 0, 1, 3))):
        if history:
            history.pop(draw.randrange(len(history)))
    if draw.random() < 0.3:  # a window that starts anywhere
        history = history[draw.randrange(len(history) + 1) :]
    if draw.random() < 0.2 and len(history) > 1:  # events of parallel agents
        index = draw.randrange(len(history) - 1)
        history[index], history[index + 1] = history[index + 1], history[index]
    return [*history, Message("user", text(draw, 20)), *_open_turn(draw, thoughts)]


def text(draw: Random, most: int) -> str:
    """Some words, in many scripts."""
    return " ".join(draw.choices(WORDS, k=draw.randint(1, most)))


def _turn(draw: Random, thoughts: Sequence[Reasoning]) -> list[Message]:
    shown = (Media("image/png", b"\x89PNG"),) if draw.random() < 0.1 else ()
    turn = [Message("user", text(draw, 30), media=shown)]
    for _ in range(draw.choice((0, 0, 1, 1, 2, 4))):
        turn += _round(draw, thoughts)
    if draw.random() < 0.9:
        turn.append(Message("assistant", text(draw, 60), reasoning=_some(draw, thoughts)))
    return turn


def _open_turn(draw: Random, thoughts: Sequence[Reasoning]) -> list[Message]:
    turn: list[Message] = []
    for _ in range(draw.choice((0, 1, 1, 3))):
        turn += _round(draw, thoughts)
    return turn


def _some(draw: Random, thoughts: Sequence[Reasoning]) -> tuple[Reasoning, ...]:
    return tuple(draw.sample(thoughts, draw.choice((0, 0, 0, 1, 2))))


def _round(draw: Random, thoughts: Sequence[Reasoning]) -> list[Message]:
    """Calls and their results: complete, or with one fault."""
    calls = [_call(draw) for _ in range(draw.choice((1, 1, 2, 3)))]
    content = text(draw, 5) if draw.random() < 0.3 else ""
    results = [ToolCall(call.id, call.name, output=_output(draw)) for call in calls]
    fate = draw.random()
    if fate < 0.1:
        results = []
    elif fate < 0.2:
        results.pop()
    elif fate < 0.3:
        results.append(ToolCall("unknown", "look", output="{}"))
    elif fate < 0.35:
        results.append(draw.choice(results))
    if draw.random() < 0.2:
        draw.shuffle(results)
    messages = [Message("assistant", content, tuple(calls), reasoning=_some(draw, thoughts))]
    if results and draw.random() < 0.2:
        return [*messages, Message("tool", "", tuple(results))]
    return [*messages, *(Message("tool", result.output, (result,)) for result in results)]


def _call(draw: Random) -> ToolCall:
    name = draw.choice(NAMES) if draw.random() < 0.97 else ""
    kind = draw.random()
    unique = f"id-{draw.getrandbits(40):x}"
    call_id = unique if kind < 0.6 else "" if kind < 0.8 else draw.choice(("call_0", "call_look"))
    return ToolCall(call_id, name, input=json.dumps({"q": text(draw, 4)}))


def _output(draw: Random) -> str:
    size = 2_000 if draw.random() < 0.05 else 40
    return json.dumps({"result": text(draw, size)}, ensure_ascii=False)
