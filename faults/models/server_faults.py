"""G15: faults of a model server, over real HTTP with the vendors' SDKs, and the next turn."""

from __future__ import annotations

import asyncio
import itertools
from typing import Final

from faults.harness import Guarantee, Outcome, Run, new_tenant
from faults.models.http_faults import FAULTS, HttpFault
from faults.models.runner_turns import RunnerConversation, Turn, quiet, talk
from lango.errors import ModelError, ModelTimeoutError
from lango.providers.base import Provider
from lango.providers.policy.retry import Policy, PolicyProvider
from lango.providers.policy.timeouts import Timeouts
from lango.testing.wires import WIRES, ScriptedAnswer, WireServer

MODELS: Final = {
    "openai_chat": "gpt-5",
    "openai_responses": "gpt-5",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3-pro",
}
IDLE: Final = 3.0
"""Seconds without a byte: far longer than an answer takes on a busy machine."""
_WELL: Final = "All is well."
_AGAIN: Final = "Still here."


def _policy(fault: HttpFault, tries: int) -> Policy:
    idle = IDLE if fault.error is ModelTimeoutError else 30.0
    timeouts = Timeouts(connect=10, idle=idle, total=60)
    return Policy(tries=tries, first_wait=0.01, longest_wait=1.0, timeouts=timeouts)


def _problem(fault: HttpFault, turn: Turn, talked: RunnerConversation, *, retries: bool) -> str:
    """The problem of the turn that met the fault, or an empty text."""
    if fault.error is None or (retries and fault.retried):
        if turn.error or turn.final != _WELL or turn.finals != 1:
            return f"not put right: {turn.error!r}, {turn.final!r}"
        if talked.sums != fault.sums or len(set(turn.calls)) != len(turn.calls):
            return f"calls {turn.calls} gave {talked.sums}"
        return ""
    error = turn.error
    if not isinstance(error, ModelError) or type(error) is not fault.error:
        return f"{error!r} instead of {fault.error.__name__}"
    if turn.finals or talked.sums:
        return f"answered all the same: {turn.final!r}, {talked.sums}"
    if error.partial_text != turn.streamed or bool(turn.streamed) != fault.spoken:
        return f"{turn.streamed!r} was streamed, {error.partial_text!r} kept"
    return "" if error.provider and error.model else "the error does not say whose it is"


class Station:
    """One server of a provider API, and a client whose connections survive every fault."""

    def __init__(self, wire: str, url: str) -> None:
        self.server = WireServer(wire, piece=97)
        self._wire = wire
        self._url = url
        self._providers: dict[float, Provider] = {}

    async def meet(self, fault: HttpFault, *, tries: int) -> str:
        """Run a turn that meets the fault, and the next turn; return the problem, if any."""
        policy = _policy(fault, tries)
        idle = policy.timeouts.idle
        if idle not in self._providers:
            self._providers[idle] = self.server.provider(policy.timeouts)
        provider = PolicyProvider(self._providers[idle], policy)
        self.server.refused.clear()
        self.server.say(fault.reply, ScriptedAnswer(_WELL))
        async with talk(self._url, new_tenant(), provider, MODELS[self._wire]) as talked:
            turn = await talked.turn("What is two and three?")
            problem = _problem(fault, turn, talked, retries=tries > 1)
            self.server.say(ScriptedAnswer(_AGAIN))
            after = await talked.turn("Are you there?")
        if self.server.refused:
            return f"the server refused: {self.server.refused[0]}"
        if after.error or after.final != _AGAIN or after.streamed != _AGAIN:
            return f"the turn after it: {after.error!r}, {after.final!r}"
        return problem


async def _meet_all(run: Run, outcome: Outcome) -> int:
    met = 0
    for wire in WIRES:
        station = Station(wire, run.databases.sqlite)
        async with station.server:
            for fault, tries in itertools.product(FAULTS, (1, 3)):
                problem = await station.meet(fault, tries=tries)
                outcome.expect(not problem, f"{wire}, {fault.name}, {tries} tries: {problem}")
                met += 1
    return met


def the_turn_after_works(run: Run) -> Outcome:
    """Every fault on every provider API, with and without retries."""
    outcome = Outcome()
    with quiet():
        met = asyncio.run(_meet_all(run, outcome))
    outcome.note(f"{len(FAULTS)} faults × {len(WIRES)} wires × with and without retry = {met}")
    return outcome


G15: Final = Guarantee(
    "G15",
    "HTTP faults of every wire: one typed error or a quiet retry, and the next turn works",
    full=0,
    ci=0,
    run=the_turn_after_works,
)
