"""Tool calls that wait for a person, and the answers that let them go on."""

from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    ParallelAgent,  # pyright: ignore[reportDeprecated]  # people have them
)
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, Workflow

from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.messages.messages import ToolCall
from lango.core.turns.events import (
    Answer,
    Approval,
    ApprovalRequired,
    Completed,
    Failed,
    InputRequired,
    Started,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)
from lango.errors import ApprovalNotFoundError, TurnConflictError
from lango.testing import Reply
from tests.adk.runner.parity.apps import ask, finish
from tests.adk.runner.turns import (
    SESSION,
    USER,
    agent,
    anything,
    call,
    kinds,
    once,
    runner_of,
    said,
    sequence,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")


def paying(*replies: Reply | str, name: str = "payer") -> tuple[LlmAgent, list[int]]:
    paid: list[int] = []

    def pay(amount: int) -> dict[str, int]:
        """Pay."""
        paid.append(amount)
        return {"paid": amount}

    return agent(name, *replies, tools=[FunctionTool(pay, require_confirmation=True)]), paid


def approvals(events: list[TurnEvent]) -> list[Approval]:
    return [event.approval for event in events if isinstance(event, ApprovalRequired)]


async def test_a_call_that_requires_confirmation_waits_and_runs_once_it_is_approved(
    sessions: SessionServiceAdapter,
) -> None:
    root, paid = paying(call("pay", amount=3), "Paid.")
    runner = runner_of(root, sessions=sessions)
    events = await once(runner)
    assert kinds(events) == ["started", "tool.started", "approval.required", "input_required"]
    [approval] = approvals(events)
    assert (approval.name, approval.arguments, approval.agent) == ("pay", {"amount": 3}, "payer")
    assert approval.hint == "", "ADK's own hint is for programs"
    assert paid == []
    assert await runner.pending(USER, SESSION) == [approval]
    events = await once(runner, [approval.answer(True)])
    assert kinds(events)[1] == "tool.finished"
    assert said(events) == [("payer", "Paid.")]
    assert paid == [3]
    assert await runner.pending(USER, SESSION) == []


async def test_a_rejected_call_is_not_run(sessions: SessionServiceAdapter) -> None:
    root, paid = paying(call("pay", amount=3), "As you wish.")
    runner = runner_of(root, sessions=sessions)
    [approval] = approvals(await once(runner))
    events = await once(runner, [approval.answer(False)])
    assert [e.error for e in events if isinstance(e, ToolFinished)] == [
        "This tool call is rejected."
    ]
    assert (said(events), paid) == ([("payer", "As you wish.")], [])


async def test_an_approval_is_answered_by_its_call_too() -> None:
    root, paid = paying(call("pay", amount=3), "Paid.")
    runner = runner_of(root)
    [approval] = approvals(await once(runner))
    assert isinstance((await once(runner, [Answer(approval.call_id, True)]))[-1], Completed)
    assert paid == [3]


async def test_later_turns_run_while_one_waits(sessions: SessionServiceAdapter) -> None:
    root, paid = paying(call("pay", amount=3), "Something else.", "Paid at last.")
    runner = runner_of(root, sessions=sessions)
    [approval] = approvals(await once(runner))
    assert said(await once(runner, "and now?")) == [("payer", "Something else.")]
    assert said(await once(runner, [approval.answer(True)])) == [("payer", "Paid at last.")]
    assert paid == [3]


async def test_some_of_several_approvals(sessions: SessionServiceAdapter) -> None:
    calls = tuple(ToolCall(f"c{n}", "pay", input=f'{{"amount": {n}}}') for n in (1, 2))
    root, paid = paying(Reply(calls=calls), "One is paid.", "So is the other.")
    runner = runner_of(root, sessions=sessions)
    one, two = approvals(await once(runner))
    events = await once(runner, [one.answer(True)])
    assert events[-1] == InputRequired((two.id,), anything)
    assert paid == [1]
    assert await runner.pending(USER, SESSION) == [two]
    assert isinstance((await once(runner, [two.answer(True)]))[-1], Completed)
    assert paid == [1, 2]


async def test_after_an_approval_a_sequence_goes_on(sessions: SessionServiceAdapter) -> None:
    first, paid = paying(call("pay", amount=3), "Paid.")
    runner = runner_of(sequence(first, agent("last", "And done.")), sessions=sessions)
    events = await once(runner)
    assert isinstance(events[-1], InputRequired)
    [approval] = approvals(events)
    events = await once(runner, [approval.answer(True)])
    assert said(events) == [("payer", "Paid."), ("last", "And done.")]
    assert paid == [3]


async def test_parallel_agents_that_ask_under_one_call_id(
    sessions: SessionServiceAdapter,
) -> None:
    """Providers number calls as they like: an approval's own id tells them apart."""
    asks = Reply(calls=(ToolCall("c1", "pay", input='{"amount": 1}'),))
    payers = [paying(asks, "Paid.", name=name) for name in ("left", "right")]
    agents: list[BaseAgent] = [payer for payer, _ in payers]
    root = ParallelAgent(name="root", sub_agents=agents)  # pyright: ignore[reportDeprecated]
    runner = runner_of(root, sessions=sessions)
    one, two = sorted(approvals(await once(runner)), key=lambda approval: approval.agent)
    assert (one.call_id, one.agent) == ("c1", "left")
    assert (two.call_id, two.agent) == ("c1", "right")
    end = (await once(runner, [Answer("c1", True)]))[-1]
    assert isinstance(end, Failed)
    assert isinstance(end.error, TurnConflictError)
    events = await once(runner, [one.answer(True), two.answer(False)])
    assert isinstance(events[-1], Completed)
    assert [paid for _, paid in payers] == [[1], []]


async def failure(answers: Callable[[Approval], list[Answer]], *, again: bool = False) -> Exception:
    root, _ = paying(call("pay", amount=3), "Paid.")
    runner = runner_of(root)
    [approval] = approvals(await once(runner))
    given = answers(approval)
    if again:
        await once(runner, given)
    end = (await once(runner, given))[-1]
    assert isinstance(end, Failed)
    return end.error


async def test_an_answer_without_a_request() -> None:
    error = await failure(lambda _: [Approval("x", "y", "pay", {}).answer(True)])
    assert isinstance(error, ApprovalNotFoundError)


async def test_the_second_answer_is_a_conflict() -> None:
    error = await failure(lambda one: [one.answer(True)], again=True)
    assert isinstance(error, TurnConflictError)


async def test_the_same_answer_twice_at_once_is_a_conflict() -> None:
    error = await failure(lambda one: [one.answer(True), one.answer(False)])
    assert isinstance(error, TurnConflictError)


async def test_no_answer_at_all_is_a_conflict() -> None:
    assert isinstance(await failure(lambda _: []), TurnConflictError)


async def test_a_payload_reaches_the_tool() -> None:
    given: list[Any] = []

    def choose(tool_context: ToolContext) -> dict[str, Any]:
        """Choose."""
        confirmation = tool_context.tool_confirmation
        if confirmation is None:
            tool_context.request_confirmation(hint="Which one?", payload={"choice": ""})
            return {"status": "asked"}
        given.append((confirmation.confirmed, confirmation.payload))
        return {"status": "chosen"}

    runner = runner_of(agent("root", call("choose"), "Wait.", "Chosen.", tools=[choose]))
    [approval] = approvals(await once(runner))
    assert approval.hint == "Which one?"
    events = await once(runner, [approval.answer(True, {"choice": "red"})])
    assert said(events) == [("root", "Chosen.")]
    assert given == [(True, {"choice": "red"})]


async def test_a_workflow_asks_a_person() -> None:
    edges: list[Any] = [(START, ask, finish)]
    runner = runner_of(Workflow(name="root", edges=edges))
    events = await once(runner)
    assert isinstance(events[-1], InputRequired)
    [approval] = approvals(events)
    assert approval.hint == "go on?"
    assert isinstance((await once(runner, [approval.answer(True, "yes")]))[-1], Completed)


async def test_a_call_that_is_answered_later_leaves_the_turn_waiting() -> None:
    def survey() -> None:
        """Ask a person who answers later."""

    runner = runner_of(agent("root", call("survey"), tools=[LongRunningFunctionTool(survey)]))
    events = await once(runner)
    started = events[1]
    assert isinstance(started, ToolStarted)
    assert events[-1] == InputRequired((started.call,), anything)
    assert events[0] == Started()
