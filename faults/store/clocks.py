"""G11: clocks that stand still, repeat themselves or run backwards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from google.adk.events.event import Event
from google.adk.platform.time import reset_time_provider, set_time_provider
from google.genai import types

from faults.harness import Guarantee, Outcome, Run, new_tenant, whole

APP: Final = "app"
USER: Final = "user"
SESSION: Final = "session"
_EPOCH: Final = 1_760_000_000.0

Clock = Callable[[int], float]


def _clocks(seed: int) -> dict[str, Clock]:
    """The time that the nth event sees, by the name of the fault."""
    draw = random.Random(seed)
    jumps = [_EPOCH + draw.uniform(-1e6, 1e6) for _ in range(997)]
    return {
        "frozen": lambda _: _EPOCH,
        "equal in pairs": lambda number: _EPOCH + number // 2,
        "backward": lambda number: _EPOCH - number,
        "stepping back": lambda number: _EPOCH + number % 10 - 100 * (number // 10),
        "jumping": lambda number: jumps[number % len(jumps)],
    }


async def _order_holds(url: str, clock: Clock, count: int) -> str:
    """Append with the clock, read by another service; return the problem, if any."""
    tenant, now = new_tenant(), [0.0]
    set_time_provider(lambda: now[0])
    try:
        async with whole(url, tenant) as writer, whole(url, tenant) as reader:
            now[0] = clock(0)
            session = await writer.create_session(app_name=APP, user_id=USER, session_id=SESSION)
            for number in range(count):
                now[0] = clock(number)
                await writer.append_event(session, _event(number))
            expected = [f"event-{number}" for number in range(count)]
            found = await reader.get_session(app_name=APP, user_id=USER, session_id=SESSION)
    finally:
        reset_time_provider()
    if [event.id for event in session.events] != expected:
        return "the session object is out of order"
    if found is None or [event.id for event in found.events] != expected:
        return "the loaded session is out of order"
    stamps = [event.timestamp for event in found.events]
    return "" if stamps == [clock(n) for n in range(count)] else "timestamps were changed"


def _event(number: int) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=str(number))])
    return Event(
        id=f"event-{number}", invocation_id=f"turn-{number // 5}", author="user", content=content
    )


async def _all_orders_hold(run: Run, count: int, outcome: Outcome) -> None:
    """Every clock on both databases at the same time: a task has its own time."""

    async def try_one(database: str, url: str, name: str, clock: Clock) -> None:
        problem = await _order_holds(url, clock, count)
        outcome.expect(not problem, f"{database}, {name} clock: {problem}")

    await asyncio.gather(
        *(
            try_one(database, url, name, clock)
            for database, url in run.databases.each().items()
            for name, clock in _clocks(run.seed).items()
        )
    )


def read_order_is_append_order(run: Run) -> Outcome:
    """The events are spread over the clocks."""
    outcome = Outcome()
    clocks = len(_clocks(run.seed))
    count = run.count // clocks
    asyncio.run(_all_orders_hold(run, count, outcome))
    outcome.note(f"{count} events × {clocks} clocks × 2 databases")
    return outcome


G11: Final = Guarantee(
    "G11",
    "frozen, equal and backward clocks: read order is append order",
    full=5_000,
    ci=1_000,
    run=read_order_is_append_order,
)
