"""The second try for an agent that was made up, apart from any model."""

from collections.abc import AsyncGenerator

import pytest

from lango.adk.runner import TurnOptions, UserInput
from lango.agent.run import correction, run_and_collect, run_and_collect_once, run_turn
from lango.core.messages.streams import Usage
from lango.core.turns.events import (
    Completed,
    Failed,
    InputRequired,
    MessageCompleted,
    Retrying,
    Started,
    TurnEvent,
)
from lango.errors import AgentNotFoundError, ModelUnavailableError

GHOST = AgentNotFoundError("ghost", ["helper", "other"])


class Plays:
    """Ends each attempt with the next of `ends`, and records its input."""

    def __init__(self, *ends: TurnEvent) -> None:
        self.ends = list(ends)
        self.asked: list[tuple[UserInput, TurnOptions]] = []

    async def run(
        self,
        user_id: str,
        session_id: str,
        user_input: UserInput,
        options: TurnOptions | None = None,
    ) -> AsyncGenerator[TurnEvent]:
        del user_id, session_id
        self.asked.append((user_input, options or TurnOptions()))
        number = len(self.asked)
        yield Started(number)
        yield MessageCompleted(f"m{number}", "root", f"try {number}")
        yield self.ends.pop(0)


async def events_of(turns: Plays, options: TurnOptions | None = None) -> list[TurnEvent]:
    return [event async for event in run_turn(turns, "user", "session", "hi", options)]


async def test_a_turn_that_ends_well_is_tried_once() -> None:
    turns = Plays(Completed())
    assert [event.type for event in await events_of(turns)] == [
        *("started", "message.completed", "completed")
    ]
    assert len(turns.asked) == 1


async def test_the_second_attempt_gets_the_correction() -> None:
    turns = Plays(Failed(GHOST, usage=Usage(1, 2)), Completed(Usage(10, 20)))
    events = await events_of(turns, TurnOptions(streaming=False, invocation_id="mine"))
    assert [event.type for event in events] == [
        *("started", "message.completed", "retrying"),
        *("started", "message.completed", "completed"),
    ]
    assert events[2] == Retrying("failed to find agent: ghost")
    assert events[-1] == Completed(Usage(11, 22))
    user_input, how = turns.asked[1]
    assert user_input == correction("ghost", ["helper", "other"])
    assert how == TurnOptions(streaming=False, attempt=2, keep_agent=True)


async def test_there_is_no_third_try() -> None:
    again = AgentNotFoundError("spook", ["helper"])
    turns = Plays(Failed(GHOST), Failed(again), Completed())
    with pytest.raises(AgentNotFoundError) as caught:
        await run_and_collect(turns, "user", "session", "hi")
    assert caught.value is again
    assert caught.value.__cause__ is GHOST
    assert caught.value.partial_text == "try 2"
    assert len(turns.asked) == 2


async def test_the_error_of_the_second_try_keeps_its_own_cause_in_sight() -> None:
    sdk = ConnectionError("reset by peer")
    error = ModelUnavailableError("gone")
    error.__cause__ = sdk
    with pytest.raises(ModelUnavailableError) as caught:
        await run_and_collect(Plays(Failed(GHOST), Failed(error)), "user", "session", "hi")
    assert (caught.value.__cause__, caught.value.__context__) == (GHOST, sdk)


@pytest.mark.parametrize(
    "error", [ModelUnavailableError("gone"), ValueError("bad"), AgentNotFoundError("ghost")]
)
async def test_nothing_else_is_tried_again(error: Exception) -> None:
    turns = Plays(Failed(error), Completed())
    with pytest.raises(type(error)) as caught:
        await run_and_collect(turns, "user", "session", "hi")
    assert caught.value is error
    assert len(turns.asked) == 1


async def test_once_is_once() -> None:
    turns = Plays(Failed(GHOST), Completed())
    with pytest.raises(AgentNotFoundError):
        await run_and_collect_once(turns, "user", "session", "hi")
    assert len(turns.asked) == 1


async def test_a_second_try_may_wait() -> None:
    turns = Plays(Failed(GHOST, usage=Usage(1)), InputRequired(("call",), Usage(2)))
    assert (await events_of(turns))[-1] == InputRequired(("call",), Usage(3))
