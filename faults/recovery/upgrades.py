"""UPGRADE: a deploy changes the agents of a sequence or a loop while a turn is in one of them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from uuid import uuid4

from google.adk.agents import (
    BaseAgent,
    LoopAgent,  # pyright: ignore[reportDeprecated]  # people have them
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)

from faults.harness import Guarantee, Outcome, Run
from faults.recovery.deaths import Died, death
from faults.recovery.kill_shapes import TURN, agent, quiet
from lango.core.failpoints import failpoint
from lango.store.sessions.entries import SessionKey
from lango.testing.kill_checks import Snapshot, snapshot
from lango.testing.kill_trials import APP, USER, Sweep, run_turns

_OLD: Final = "abcd"
_DIES_AT: Final = (
    *("append.after",) * 3,  # most often: recovery depends on which rows are stored
    *("model.start", "model.end", "ledger.finish.after", "tool.effect"),
)


def _tree(names: Sequence[str], ran: list[str], kind: str) -> BaseAgent:
    agents: list[BaseAgent] = [_paying(name, ran) for name in names]
    if kind == "loop":
        return LoopAgent(name="root", max_iterations=1, sub_agents=agents)  # pyright: ignore[reportDeprecated]
    return SequentialAgent(name="root", sub_agents=agents)  # pyright: ignore[reportDeprecated]


def _paying(name: str, ran: list[str]) -> BaseAgent:
    """An agent that pays once, by a tool that may run twice, and says so."""

    async def pay(k: str) -> str:
        """Pay."""
        failpoint("tool.effect")
        ran.append(name)
        return k

    pay.idempotent = True  # pyright: ignore[reportFunctionMemberAccess]
    return agent(name, [("pay", {"k": name})], f"{name} has paid", tools=[pay])


def _changed(drawn: random.Random) -> str:
    """The next version: agents removed, added, renamed, moved."""
    names = list(_OLD)
    for _ in range(drawn.randint(1, 2)):
        change = drawn.choice(("remove", "add", "rename", "reorder"))
        index = drawn.randrange(len(names)) if names else 0
        if change == "remove" and len(names) > 1:
            names.pop(index)
        elif change == "add":
            names.insert(index, next(name for name in "xyz" if name not in names))
        elif change == "rename" and names:
            names[index] = next(name for name in "uvw" if name not in names)
        else:
            drawn.shuffle(names)
    return "".join(names)


async def _trial(url: str, drawn: random.Random, outcome: Outcome) -> str:
    """Start a turn with the old version, cut it off, and end it with the new one."""
    key = SessionKey(f"tenant-{uuid4().hex}", APP, USER, "session")
    new, kind = _changed(drawn), drawn.choice(("sequence", "loop"))
    point, times = drawn.choice(_DIES_AT), drawn.randint(1, 8)
    ran: list[str] = []
    turns = (f"{TURN} one",)
    with death(point, times) as died, suppress(BaseExceptionGroup, Died):
        old = Sweep(lambda: _tree(_OLD, ran, kind), turns, url)
        await run_turns(old, key, f"{key.tenant}-0", ())
    before = await snapshot(url, key)
    await run_turns(
        Sweep(lambda: _tree(new, ran, kind), turns, url),
        key,
        f"{key.tenant}-1",
        [f"{key.tenant}-0"],
    )
    after = await snapshot(url, key)
    trial = f"{kind} {_OLD} to {new}, died at {point} {times}"
    for wrong in _wrongs(before, after, new):
        outcome.fail(f"{trial}: {wrong}")
    return after.turns[-1] if died.happened else "not cut off"


def _finished_agents(shot: Snapshot) -> list[str]:
    """The agents that have given their final answer, in order."""
    return [author for _, author, text in shot.history[0] if text.endswith("has paid")]


def _paid(shot: Snapshot) -> Counter[str]:
    return Counter(author for _, author, text in shot.history[0] if text.startswith("gave pay"))


def _wrongs(before: Snapshot, after: Snapshot, new: str) -> list[str]:
    begun = [author for _, author, _ in before.history[0] if author != "user"]
    finished, wrong = _finished_agents(before), list[str]()
    open_agent = begun[-1] if begun and begun[-1] not in finished else ""
    refused = after.turns == ("failed",)
    if refused != (bool(open_agent) and open_agent not in new):
        wrong.append(f"the turn is {after.turns}, in {open_agent or 'no agent'}")
    if (
        max(_paid(after).values(), default=0) > 1
        or max(Counter(_finished_agents(after)).values(), default=0) > 1
    ):
        wrong.append(f"something was done twice: {_paid(after)}, {_finished_agents(after)}")
    if finished != _finished_agents(after)[: len(finished)]:
        wrong.append(f"what was done is gone: {finished}, {_finished_agents(after)}")
    if not refused and before.turns == ("running",):
        left_out = set(new) - set(_finished_agents(after))
        wrong += [f"left out: {sorted(left_out)}"] if left_out else []
    if set(after.calls) - set(after.responses):
        wrong.append("a call without a response")
    return wrong


def upgrades(run: Run) -> Outcome:
    """The trials, shared out over both databases."""
    outcome, drawn = Outcome(), random.Random(run.seed)
    quiet()
    ends = Counter[str]()
    databases = list(run.databases.each().values())
    for number in range(run.count):
        ends[asyncio.run(_trial(databases[number % 2], drawn, outcome))] += 1
    counts = ", ".join(f"{times} {end}" for end, times in sorted(ends.items()))
    outcome.note(f"{run.count} turns whose agents were changed in the middle: {counts}")
    return outcome


UPGRADE: Final = Guarantee(
    "UPGRADE",
    "agents added, removed, renamed and reordered in mid-turn: nothing repeated, nothing left out",
    full=300,
    ci=30,
    run=upgrades,
)
