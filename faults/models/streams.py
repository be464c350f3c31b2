"""G14: streams of a model cut at every byte, out of order, garbled, with wrong or no ids."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Any, Final

from google.adk.models.llm_request import LlmRequest
from google.genai import types

from faults.harness import Guarantee, Outcome, Run
from faults.models.canned import Canned, canned_provider
from faults.models.server_faults import MODELS
from lango.adk.models.adapter import ModelAdapter
from lango.errors import ModelError
from lango.testing.wires import WIRES, Call, ScriptedAnswer
from lango.testing.wires.script import Frame

_TEXTS: Final = ("", "Hello.", "Grüße aus 東京 😀!", 'A "quote", a \\ and a\nline.', "x" * 40)
_ARGUMENTS: Final = ('{"a": 2, "b": 3}', '{"a": [1, {"b": "é😀"}]}', "{}", '{"text": "a\\nb"}')
_WRONG: Final = (
    '{"a": 2',
    "[1]",
    "null",
    '"text"',
    "{]",
    '{"a": NaN}',
    '{"a":' * 99 + "1" + "}" * 99,
)
_IDS: Final = ("call_1", "call_2", "call_1", "", None, "adk-1", "toolu_é")
_CLOSING: Final = 4  # bytes at the end of a frame that some SDKs do not need


@dataclass(slots=True)
class Seen:
    """The events of one answer that a consumer received."""

    streamed: str = ""
    finals: list[types.Content] = field(default_factory=list[types.Content])
    error: Exception | None = None
    calls_in_partials: int = 0

    @property
    def text(self) -> str:
        """The text of the final response."""
        return "".join(p.text or "" for p in self._parts if not p.thought)

    @property
    def calls(self) -> list[types.FunctionCall]:
        """The calls of the final response."""
        return [part.function_call for part in self._parts if part.function_call]

    @property
    def _parts(self) -> list[types.Part]:
        return [part for content in self.finals for part in content.parts or []]


class Bench:
    """One provider API on canned bytes."""

    def __init__(self, wire: str) -> None:
        self.wire = WIRES[wire]
        self.canned = Canned()
        self._model = ModelAdapter(canned_provider(wire, self.canned), MODELS[wire])
        declaration = types.FunctionDeclaration(
            name="add", parameters_json_schema={"type": "object", "properties": {"a": {}}}
        )
        self._request = LlmRequest(
            contents=[types.Content(role="user", parts=[types.Part(text="hello")])],
            config=types.GenerateContentConfig(
                tools=[types.Tool(function_declarations=[declaration])]
            ),
        )

    def frames(self, answer: ScriptedAnswer) -> list[Frame]:
        """An answer as the vendor streams it."""
        return self.wire.frames(answer, MODELS[self.wire.name])

    async def see(self, data: bytes, sizes: tuple[int, ...], *, breaks: bool) -> Seen:
        """Stream the bytes; return the received events."""
        self.canned.data, self.canned.sizes, self.canned.breaks = data, sizes, breaks
        self.canned.sent.clear()
        seen = Seen()
        try:
            async for response in self._model.generate_content_async(self._request, stream=True):
                parts = (response.content.parts if response.content else None) or []
                if response.partial:
                    seen.streamed += "".join(p.text or "" for p in parts if not p.thought)
                    seen.calls_in_partials += sum(p.function_call is not None for p in parts)
                elif response.content:
                    seen.finals.append(response.content)
        except Exception as error:  # noqa: BLE001 - judged below
            seen.error = error
        return seen


def _general_problem(seen: Seen) -> str:
    """The broken invariant, whatever the bytes are, or an empty text."""
    if seen.error is not None and not isinstance(seen.error, ModelError):
        return f"an error of no type of ours: {seen.error!r}"
    if len(seen.finals) + (seen.error is not None) != 1:
        return f"{len(seen.finals)} finals and {seen.error!r}"
    final_text = seen.error.partial_text if isinstance(seen.error, ModelError) else seen.text
    if final_text != seen.streamed:
        return f"{seen.streamed!r} was streamed, and {final_text!r} told at the end"
    if seen.calls_in_partials:
        return "a tool call in a partial response"
    ids = [call.id or "" for call in seen.calls]
    if len(set(ids)) != len(ids) or any(not i or i.startswith("adk-") for i in ids):
        return f"ids {ids}"
    whole = all(call.name and isinstance(call.args, dict) for call in seen.calls)
    return "" if whole else "a call that is not whole"


def _exact_problem(seen: Seen, answer: ScriptedAnswer, *, whole: bool | None) -> str:
    """The broken invariant; `whole` says if the answer is complete, None if unknown."""
    if whole is None:
        return ""
    if not whole:
        return f"taken for whole: {seen.text!r}" if seen.finals else ""
    if seen.error is not None:
        return f"not taken for whole: {seen.error!r}"
    if seen.text != answer.text:
        return f"{seen.text!r} instead of {answer.text!r}"
    made: list[tuple[str | None, Any]] = [(call.name, call.args) for call in seen.calls]
    expected = [(call.name, json.loads(call.arguments)) for call in answer.calls]
    return "" if made == expected else f"calls {made} instead of {expected}"


def _whole_from(frames: list[Frame]) -> int:
    """The number of bytes after which the answer is complete."""
    first = next(number for number, frame in enumerate(frames) if frame.finish)
    return sum(len(frame.data) for frame in frames[: first + 1])


def _answer(draw: random.Random, *, wrong: bool) -> ScriptedAnswer:
    arguments = _ARGUMENTS + (_WRONG if wrong else ())
    calls = tuple(
        Call("add", draw.choice(arguments), draw.choice(_IDS)) for _ in range(draw.randrange(4))
    )
    text = draw.choice(_TEXTS)
    thoughts = draw.choice(("", "Hm, let me think."))
    signature = draw.choice(("", "c2lnbmVk"))
    return ScriptedAnswer(text, calls, thoughts, signature, delta=draw.randrange(2, 20))


def _sizes(draw: random.Random) -> tuple[int, ...]:
    return tuple(draw.randrange(1, 60) for _ in range(draw.randrange(1, 5)))


def _garbled(draw: random.Random, frames: list[Frame]) -> bytes:
    """Frames removed, duplicated, swapped, or with changed bytes."""
    data = [frame.data for frame in frames]
    match draw.randrange(6):
        case 0:
            del data[draw.randrange(len(data))]
        case 1:
            data.insert(draw.randrange(len(data)), draw.choice(data))
        case 2:
            draw.shuffle(data)
        case 3:
            return b"".join(frame.data for frame in frames if not frame.finish)
        case 4:
            joined = bytearray(b"".join(data))
            for _ in range(draw.randrange(1, 4)):
                joined[draw.randrange(len(joined))] = draw.randrange(256)
            return bytes(joined)
        case _:
            at = draw.randrange(len(data))
            data[at] = data[at].replace(b"null", b"[]").replace(b'"index"', b'"indes"')
    return b"".join(data)


async def _cut(bench: Bench, draw: random.Random, count: int, outcome: Outcome) -> int:
    """Cut answers at every byte, for as many answers as the count allows."""
    done = 0
    while done < count:
        answer = _answer(draw, wrong=False)
        frames = bench.frames(answer)
        data = b"".join(frame.data for frame in frames)
        whole_from = _whole_from(frames)
        step = max(1, len(data) // max(1, count - done))
        for at in range(draw.randrange(step), len(data) + 1, step):
            seen = await bench.see(data[:at], _sizes(draw), breaks=draw.random() < 0.5)
            unclear = whole_from - _CLOSING <= at < whole_from
            whole = None if unclear else at >= whole_from
            problem = _general_problem(seen) or _exact_problem(seen, answer, whole=whole)
            outcome.expect(not problem, f"{bench.wire.name}, cut at {at}, {answer}: {problem}")
            done += 1
    return done


async def _fuzz(bench: Bench, draw: random.Random, count: int, outcome: Outcome) -> None:
    """Answers that are invalid, or garbled in transit."""
    for _ in range(count):
        answer = _answer(draw, wrong=True)
        frames = bench.frames(answer)
        whole: bool | None = None
        if draw.random() < 0.3:
            data = b"".join(frame.data for frame in frames)
            wrong = {call.arguments for call in answer.calls}.intersection(_WRONG)
            whole = None if wrong == {"null"} else not wrong  # some servers send it for none
        else:
            data = _garbled(draw, frames)
        seen = await bench.see(data, _sizes(draw), breaks=draw.random() < 0.2)
        problem = _general_problem(seen) or _exact_problem(seen, answer, whole=whole)
        outcome.expect(not problem, f"{bench.wire.name}, {answer}, {data!r:.400}: {problem}")


async def _all_wires(run: Run, outcome: Outcome) -> int:
    cuts = 0
    for number, wire in enumerate(WIRES):
        bench, draw = Bench(wire), random.Random(run.seed + number)
        share = run.count // len(WIRES)
        cuts += await _cut(bench, draw, share // 2, outcome)
        await _fuzz(bench, draw, share - share // 2, outcome)
    return cuts


def one_end_and_no_more(run: Run) -> Outcome:
    """Fuzzed streams on every provider API, through the vendors' SDKs and our model adapter."""
    outcome = Outcome()
    cuts = asyncio.run(_all_wires(run, outcome))
    outcome.note(f"{run.count} streams on {len(WIRES)} wires, {cuts} of them cut short")
    return outcome


G14: Final = Guarantee(
    "G14",
    "fuzzed streams: one final or one typed error, text as streamed, no incomplete call",
    full=100_000,
    ci=5_000,
    run=one_end_and_no_more,
)
