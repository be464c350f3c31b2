"""DELTAS: a turn's log is the same whether its deltas pass through ADK or not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast
from uuid import uuid4

from google.adk.models import BaseLlm

from faults.harness import Guarantee, Outcome, Run
from faults.recovery.deaths import Died, death
from faults.recovery.kill_shapes import SHAPES as PLAIN_SHAPES
from faults.recovery.kill_shapes import KillShape, Rule, quiet, with_models
from faults.recovery.shapes import SHAPES as GATED_SHAPES
from lango.adk.models.adapter import ModelAdapter
from lango.core.messages.streams import StreamEvent, StreamEventError, TextDelta, ThoughtDelta
from lango.core.turns.events import (
    Failed,
    MessageCompleted,
    MessageDelta,
    ReasoningDelta,
    TurnEvent,
)
from lango.errors import ModelUnavailableError
from lango.providers.base import ModelRequest
from lango.store.sessions.entries import SessionKey
from lango.testing import ScriptedProvider
from lango.testing.kill_checks import Snapshot, snapshot
from lango.testing.kill_trials import APP, USER, Sweep, run_turns

SHAPES: Final[dict[str, KillShape]] = {**PLAIN_SHAPES, **GATED_SHAPES}
_DELTA: Final = "model.delta"
_LETTERS: Final = "ab é\n🙂"
_FAILS: Final = 0.05  # of the answers, somewhere in their text
_PAUSES: Final = (None, None, 0.0, 0.001)  # seconds before an event; None: no task switch either


class Shredded(ScriptedProvider):
    """Streams scripted answers in random pieces, with thoughts in between; some fail.

    The same request gets the same pieces.
    """

    def __init__(self, rule: Rule, seed: int, *, fails: bool) -> None:
        super().__init__(rule=rule)
        self._seed = seed
        self._fails = _FAILS if fails else 0.0

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """The scripted answer, in pieces."""
        prompt = "|".join(message.content for message in request.messages)
        drawn = random.Random(f"{self._seed} {prompt}")
        async for event in super().stream(request):
            for piece in _pieces(event, drawn, self._fails):
                pause = drawn.choice(_PAUSES)
                if pause is not None:
                    await asyncio.sleep(pause)
                yield piece


def _pieces(event: StreamEvent, drawn: random.Random, fails: float) -> Iterator[StreamEvent]:
    if not isinstance(event, TextDelta):
        yield event
        return
    if drawn.random() < fails:
        yield StreamEventError(ModelUnavailableError("The model went away."))
    if drawn.random() < 0.3:
        yield ThoughtDelta("".join(drawn.choices(_LETTERS, k=drawn.randint(0, 4))))
    text = event.text
    while text:
        length = drawn.randint(0, len(text))
        yield TextDelta(text[:length])
        text = text[length:]


def _shredded(seed: int, fails: bool, rule: Rule) -> BaseLlm:
    return ModelAdapter(Shredded(rule, seed, fails=fails), "demo")


@dataclass(frozen=True, slots=True)
class Trial:
    """One shape, the seed of its pieces, and the delta at which its worker dies."""

    name: str
    seed: int
    dies_at: int  # 0: nowhere

    @property
    def shape(self) -> KillShape:
        """The agent and its turns."""
        return SHAPES[self.name]

    def sweep(self, url: str) -> Sweep:
        """The sweep that runs both ways."""
        kind = partial(_shredded, self.seed, not self.shape.side_by_side)
        make = with_models(self.shape, kind).make
        return Sweep(make, self.shape.turns, url, self.shape.state or {})


@dataclass(slots=True)
class TrialEvents:
    """The events of a turn before its worker died, and those by the next worker."""

    before: list[TurnEvent]
    after: list[TurnEvent]
    stored: Snapshot
    deltas: int  # deltas that the model streamed to the first worker


async def run_trial(trial: Trial, url: str, *, direct: bool) -> TrialEvents:
    """Run the turns of a trial, with deltas through ADK or directly."""
    key = SessionKey(f"tenant-{uuid4().hex}", APP, USER, "session")
    before, after = list[TurnEvent](), list[TurnEvent]()
    run = partial(run_turns, trial.sweep(url), key)
    with death(_DELTA, trial.dies_at) as died, suppress(BaseExceptionGroup, Died):
        publish = before.append if direct else None
        await run(f"{key.tenant}-0", (), log=before.append, publish=publish)
    if died.happened:
        publish = after.append if direct else None
        await run(f"{key.tenant}-1", [f"{key.tenant}-0"], log=after.append, publish=publish)
    return TrialEvents(before, after, await snapshot(url, key), died.passed[_DELTA])


def comparable(events: Sequence[TurnEvent], *, side_by_side: bool) -> list[Any]:
    """Events with deltas joined and ids replaced; in one order, if several agents run at once."""
    names: dict[str, int] = {}
    joined: list[TurnEvent] = []
    for event in events:
        _join(joined, event)
    types_and_data = [
        (event.type, _renamed(event.data(), {} if side_by_side else names)) for event in joined
    ]
    return sorted(types_and_data, key=repr) if side_by_side else types_and_data


def _join(joined: list[TurnEvent], event: TurnEvent) -> None:
    """Add an event; a delta is added to the text of its message."""
    if isinstance(event, MessageDelta | ReasoningDelta):
        for index, last in enumerate(joined):
            is_delta = isinstance(last, MessageDelta | ReasoningDelta)
            if is_delta and (last.type, last.message) == (event.type, event.message):
                joined[index] = replace(last, text=last.text + event.text)
                return
    joined.append(event)


_IDS: Final = ("message", "call", "approval", "stored_as", "calls")


def _renamed(data: dict[str, Any], names: dict[str, int]) -> dict[str, Any]:
    """Data whose ids are numbered in the order of their appearance."""

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(each) for each in cast("list[Any]", value)]
        return names.setdefault(value, len(names)) if value else value

    return {key: number(value) if key in _IDS else value for key, value in data.items()}


def _unfinished(events: Sequence[TurnEvent]) -> str:
    """The text of the message that was cut off."""
    texts: dict[str, str] = {}
    for event in events:
        if isinstance(event, MessageDelta):
            texts[event.message] = texts.get(event.message, "") + event.text
        elif isinstance(event, MessageCompleted):
            texts.pop(event.message, None)
    return "".join(texts.values())


async def _compare(trial: Trial, url: str, outcome: Outcome) -> int:
    """Run a trial both ways and compare; return the number of streamed deltas."""
    by_adk = await run_trial(trial, url, direct=False)
    direct = await run_trial(trial, url, direct=True)
    same = partial(comparable, side_by_side=trial.shape.side_by_side)
    if not trial.dies_at and same(by_adk.before) != same(direct.before):
        outcome.fail(f"{trial}: told {same(by_adk.before)}, directly {same(direct.before)}")
    if same(by_adk.after) != same(direct.after):
        outcome.fail(f"{trial}: then told {same(by_adk.after)}, directly {same(direct.after)}")
    if _stored(by_adk) != _stored(direct):
        outcome.fail(f"{trial}: stored {_stored(by_adk)}, directly {_stored(direct)}")
    _check_prefix(trial, direct, outcome)
    return direct.deltas


def _stored(found: TrialEvents) -> Any:
    """The history, in one order, and the state."""
    return [sorted(turn) for turn in found.stored.history], found.stored.state


def _check_prefix(trial: Trial, direct: TrialEvents, outcome: Outcome) -> None:
    """The text that the dead worker streamed is a prefix of the next worker's message."""
    cut = _unfinished(direct.before) if direct.after else ""
    whole = [event.text for event in direct.after if isinstance(event, MessageCompleted)]
    failed = [event.text for event in direct.after if isinstance(event, Failed)]
    if cut and not any(text.startswith(cut) for text in (*whole, *failed)):
        outcome.fail(f"{trial}: {cut!r} was told, which begins none of {whole}")


def _trials(count: int, drawn: random.Random) -> Iterator[Trial]:
    """Concurrent agents neither die nor fail: their progress at that moment would be random."""
    names = list(SHAPES)
    for number in range(count):
        name, seed = names[number % len(names)], drawn.getrandbits(32)
        dies_at = 0 if SHAPES[name].side_by_side else drawn.choice((0, drawn.randint(1, 12)))
        yield Trial(name, seed, dies_at)


async def _run_all(run: Run) -> Outcome:
    outcome, deltas = Outcome(), 0
    for trial in _trials(run.count, random.Random(run.seed)):
        deltas += await _compare(trial, run.databases.sqlite, outcome)
    outcome.note(f"{run.count} streams in {len(SHAPES)} shapes, {deltas} deltas, both ways alike")
    return outcome


def _row(run: Run) -> Outcome:
    quiet()
    return asyncio.run(_run_all(run))


DELTAS: Final = Guarantee(
    "DELTAS",
    "deltas that bypass ADK give readers the same log as ADK's partial events, also after a kill",
    full=2_000,
    ci=40,
    run=_row,
    parts=4,
)
