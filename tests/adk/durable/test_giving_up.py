"""Histories of turns that are given up: children, questions that stay, and who was speaking."""

import pytest
import sqlalchemy as sa
from google.adk.agents import LlmAgent
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions

from faults.recovery.kill_shapes import agent, tool
from lango.adk.durable.closing import speaker_after, unfinished
from lango.core.turns.events import Event as TurnEvent
from lango.core.turns.events import MessageCompleted, MessageDelta, MessageReset, ReasoningDelta
from lango.core.turns.states import MAX_ATTEMPTS, MIN_ALONE
from lango.store.schema.tables import IS_RUNNING, sessions, turns
from lango.store.sessions.entries import SessionKey
from lango.store.turns.log import LoggedEvent
from lango.testing.kill_trials import HumanReply, Sweep
from tests.adk.durable.dying import cut_off, new_key, resumed, sweep_of, undisturbed
from tests.store.rows import execute

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")


async def _wear_out(url: str, key: SessionKey) -> None:
    """Let the turn that runs have lost all the workers it may lose."""
    mine = sa.select(sessions.c.pk).where(sessions.c.tenant == key.tenant)
    running = sa.update(turns).where(turns.c.session_pk.in_(mine), IS_RUNNING)
    await execute(url, running.values(attempts=MAX_ATTEMPTS, lost_alone=MIN_ALONE))


@pytest.mark.parametrize(
    ("shape", "point", "times"),
    [
        ("tools", "ledger.start.after", 1),
        ("parallel tools", "ledger.finish.before", 2),  # the first has finished
        ("sequence", "tool.effect", 1),
        ("parallel", "tool.effect", 1),
        ("workflow", "tool.effect", 3),
        ("long-running", "append.after", 4),
        ("agent as tool", "tool.effect", 2),
        ("sequence as tool", "tool.effect", 1),
    ],
)
async def test_every_open_call_is_answered(
    shape: str, point: str, times: int, sqlite_url: str
) -> None:
    sweep, key = sweep_of(shape, sqlite_url), new_key()
    one = Sweep(sweep.make_app, sweep.turns[:1], sweep.url, sweep.state)
    dead = await cut_off(one, key, point, times)
    await _wear_out(sqlite_url, key)
    after = await resumed(one, key, dead)
    assert (after.turns, after.gaps) == (("failed",), False)
    assert after.has_unknown
    assert after.calls == after.responses
    assert len(after.history) == (2 if shape.endswith("as tool") else 1)


async def test_a_tool_that_had_finished_is_answered_for(store_url: str) -> None:
    sweep, key = sweep_of("tools", store_url), new_key()
    one = Sweep(sweep.make_app, sweep.turns[:1], sweep.url, sweep.state)
    dead = await cut_off(one, key, "ledger.finish.after")
    await _wear_out(store_url, key)
    after = await resumed(one, key, dead)
    assert (after.turns, after.calls) == (("failed",), after.responses)
    assert after.history[0][-1][2] == 'gave t1 {"ok": "t1 a"}'
    assert (after.state["s1"], after.user_state["user:s1"]) == ("a", "a")
    assert not after.has_unknown


async def test_a_child_that_is_closed_is_closed_once(store_url: str) -> None:
    sweep, key = sweep_of("agent as tool", store_url), new_key()
    first = await cut_off(sweep, key, "tool.effect", 2)
    await _wear_out(store_url, key)
    second = await cut_off(sweep, key, "append.after", dead=[first])  # the child's call is answered
    after = await resumed(sweep, key, first, second)
    assert (after.turns, after.calls) == (("failed",), after.responses)
    assert set(after.responses.values()) == {1}


def _two_payments() -> LlmAgent:
    calls = [("pay", {"k": "a"}), ("pay", {"k": "b"})]
    return agent("root", calls, "paid", tools=[tool("pay", require_confirmation=True)])


@pytest.mark.parametrize("point", ["append.before", "tool.effect"])
async def test_a_question_that_others_wait_for_stays_open(point: str, store_url: str) -> None:
    key, asked = new_key(), Sweep(_two_payments, ["TURN one"], store_url)
    await resumed(asked, key)
    answered = Sweep(_two_payments, ["TURN one", HumanReply()], store_url)
    dead = await cut_off(answered, key, point)
    await _wear_out(store_url, key)
    after = await resumed(answered, key, dead)
    assert after.turns == ("input_required", "failed")
    # An answer that was not stored is not used up: its question stays open as well.
    still_open = 2 if point == "append.before" else 1
    assert len(set(after.calls) - set(after.responses)) == still_open
    replies = [HumanReply() for _ in range(1 + still_open)]
    both = Sweep(_two_payments, ["TURN one", *replies], store_url)
    last = await resumed(both, key)
    assert (last.turns[:2], last.turns[-1]) == (("answered", "failed"), "completed")
    assert set(last.calls) == set(last.responses)


def _payment() -> LlmAgent:
    pay = tool("pay", state="paid", require_confirmation=True)
    return agent("root", [("pay", {"k": "a"})], "paid", tools=[pay])


@pytest.mark.parametrize(
    ("approved", "point", "times", "told"),
    [
        (True, "ledger.start.after", 1, 'gave pay {"error": "interrupted, outcome unknown"}'),
        (True, "tool.effect", 1, 'gave pay {"error": "interrupted, outcome unknown"}'),
        (True, "ledger.finish.after", 1, 'gave pay {"ok": "pay a"}'),
        (False, "append.after", 5, 'gave pay {"error": "This tool call is rejected."}'),
    ],
)
async def test_a_call_that_a_person_decided_on_is_answered(
    approved: bool, point: str, times: int, told: str, store_url: str
) -> None:
    sweep, key = Sweep(_payment, ["TURN one", HumanReply(approved)], store_url), new_key()
    dead = await cut_off(sweep, key, point, times)
    await _wear_out(store_url, key)
    after = await resumed(sweep, key, dead)
    assert after.turns == ("answered", "failed")
    *_, (_, _, answer), (_, _, last) = after.history[0]
    assert answer.startswith("gave adk_request_confirmation")
    assert last == told
    assert after.state.get("paid") == ("a" if "ok" in told else None)
    if not approved:  # in the words of ADK
        assert last in str((await undisturbed(sweep)).history)


def _logged(event: TurnEvent) -> LoggedEvent:
    return LoggedEvent(1, event.type, event.data(), 1, 0.0)


def test_what_a_log_has_only_parts_of() -> None:
    told: list[TurnEvent] = [
        MessageDelta("whole", "a"),
        MessageCompleted("whole", "agent", "a"),
        MessageDelta("reset", "b"),
        MessageReset("reset"),
        ReasoningDelta("cut", "hm"),
        MessageDelta("cut", "c"),
        ReasoningDelta("thought", "hm"),
        MessageDelta("cut", "d"),
    ]
    assert unfinished(map(_logged, told)) == {"cut": "cd", "thought": ""}


def test_who_was_speaking() -> None:
    user, one = Event(author="user"), Event(author="one")
    transfer = Event(author="one", actions=EventActions(transfer_to_agent="two"))
    noted = EventActions(agent_state={"current_sub_agent": "three"})
    assert speaker_after([user], "root") == "root"
    assert speaker_after([one, user], "root") == "one"
    assert speaker_after([one, transfer], "root") == "two"
    assert speaker_after([one, Event(author="row", actions=noted)], "root") == "three"
