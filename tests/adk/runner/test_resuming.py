"""A turn that is taken up again where it broke off."""

import pytest

from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.turns.events import Completed, Failed
from lango.errors import ModelUnavailableError
from lango.testing import Fault, Reply
from tests.adk.runner.turns import (
    APP,
    SESSION,
    USER,
    Script,
    agent,
    once,
    runner_of,
    said,
    sequence,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")


async def test_a_sequence_goes_on_with_the_agent_that_failed(
    sessions: SessionServiceAdapter,
) -> None:
    first = Script("One.", "Never asked for.")
    fault = Fault(1, ModelUnavailableError("away"))
    last = agent("last", Reply("Two and", fault=fault), "Two.")
    runner = runner_of(sequence(first.agent("first"), last), sessions=sessions)
    assert isinstance((await once(runner))[-1], Failed)
    session = await sessions.get_session(app_name=APP, user_id=USER, session_id=SESSION)
    assert session
    turn = session.events[-1].invocation_id
    events = await once(runner, None, invocation_id=turn, keep_agent=True, attempt=2)
    assert isinstance(events[-1], Completed)
    assert said(events) == [("last", "Two.")]
    assert len(first.requests) == 1


async def test_the_invocation_of_a_new_turn_can_be_chosen(sessions: SessionServiceAdapter) -> None:
    runner = runner_of(agent("root", "Hello."), sessions=sessions)
    assert isinstance((await once(runner, invocation_id="turn_1"))[-1], Completed)
    session = await sessions.get_session(app_name=APP, user_id=USER, session_id=SESSION)
    assert session
    assert {event.invocation_id for event in session.events} == {"turn_1"}
