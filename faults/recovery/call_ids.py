"""IDS: the kill sweep with models whose call ids are unique only within one response."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from typing import Final

from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import PrivateAttr

from faults.harness import Guarantee, Outcome, Run
from faults.recovery.kill_shapes import SHAPES, SWEEP_SHAPES, KillShape, Rule, quiet, with_models
from faults.recovery.kills import run_sweeps
from lango.adk.models.adapter import ModelAdapter
from lango.adk.models.convert import convert_messages
from lango.core.values import json_value
from lango.providers.base import ModelRequest
from lango.testing import Reply, ScriptedProvider
from lango.testing.kill_checks import differences
from lango.testing.kills import SweepReport, kill_sweep


def numbered(rule: Rule) -> Rule:
    """The same answers, with calls numbered from 0 in each: `call_0`, `call_1`, …"""

    def answer(request: ModelRequest) -> Reply:
        reply = rule(request)
        calls = (replace(call, id=f"call_{n}") for n, call in enumerate(reply.calls))
        return replace(reply, calls=tuple(calls))

    return answer


def adapted(rule: Rule) -> BaseLlm:
    """Such a model behind lango's adapter."""
    return ModelAdapter(ScriptedProvider(rule=numbered(rule)), "demo")


class PlainModel(BaseLlm):
    """Such a model written by a user for ADK: lango does not see its answers."""

    _rule: Rule = PrivateAttr()

    def __init__(self, rule: Rule) -> None:
        super().__init__(model="plain")
        self._rule = numbered(rule)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """One response, after a delta of its text when streaming."""
        request = ModelRequest("plain", convert_messages(llm_request.contents))
        reply = self._rule(request)
        text_parts = [types.Part(text=reply.text)] if reply.text else []
        if stream and text_parts:
            yield LlmResponse(content=types.Content(role="model", parts=text_parts), partial=True)
        calls = [
            types.Part(
                function_call=types.FunctionCall(
                    id=call.id, name=call.name, args=json_value(call.input)
                )
            )
            for call in reply.calls
        ]
        yield LlmResponse(content=types.Content(role="model", parts=[*text_parts, *calls]))


MODELS: Final[dict[str, Callable[[Rule], BaseLlm]]] = {"adapted": adapted, "plain": PlainModel}


NUMBERED: Final[dict[str, KillShape]] = {
    f"{name}, {model} model": with_models(shape, kind)
    for name, shape in SHAPES.items()
    for model, kind in MODELS.items()
}
"""Every shape with each kind of model."""
SWEEP_SHAPES.update(NUMBERED)


def every_shape(run: Run) -> Outcome:
    """Kills drawn over all shapes and both databases, each shape with a random model.

    The full run takes every failpoint of every shape with each kind of model. The result is
    also compared with a run in which every call has a unique id.
    """
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=context) as pool:
        reports = pool.map(_run_without_kills, SHAPES, repeat(run.databases.sqlite))
        expected = dict(zip(SHAPES, reports, strict=True))

    def check(numbered: str, report: SweepReport) -> Iterator[str]:
        with_own_ids = expected[numbered.rpartition(",")[0]]
        if with_own_ids.undisturbed and report.undisturbed:
            yield from differences(with_own_ids.undisturbed, report.undisturbed)
        if sorted(with_own_ids.effects) != sorted(report.effects):
            yield f"the tools did {report.effects}, not {with_own_ids.effects}"

    drawn = random.Random(run.seed)
    names = [f"{name}, {drawn.choice(list(MODELS))} model" for name in SHAPES]
    return run_sweeps(run, names if run.count else list(NUMBERED), check)


def _run_without_kills(name: str, url: str) -> SweepReport:
    quiet()
    shape = SHAPES[name]
    return kill_sweep(shape.make, shape.turns, url, count=0, state=shape.state)


IDS: Final = Guarantee(
    "IDS",
    "models that number their calls from 0: every tool runs for its own call, also after kills",
    full=0,
    ci=60,
    run=every_shape,
    parts=16,
    picks=True,
)
