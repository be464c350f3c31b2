"""Approvals of an agent with a store: each answer, or some together, is a turn of its own."""

import pytest
from google.adk.agents import LlmAgent

from lango.adk.apps.build import llm_agent
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.messages.messages import ToolCall
from lango.core.turns.events import (
    Approval,
    ApprovalRequired,
    Completed,
    InputRequired,
    ToolFinished,
    TurnEvent,
)
from lango.errors import ApprovalNeededError, ApprovalNotFoundError, TurnConflictError
from lango.testing import Reply, ScriptedProvider
from lango.tools.function import tool
from tests.adk.runner.agent.durable_agents import APP, Made, service, told
from tests.adk.runner.turns import call, said


def paying(*replies: Reply | str) -> tuple[LlmAgent, list[int], ScriptedProvider]:
    paid: list[int] = []

    @tool(require_confirmation=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    provider = ScriptedProvider(replies)
    return llm_agent("payer", provider, tools=[pay]), paid, provider


def approvals(events: list[TurnEvent]) -> list[Approval]:
    return [event.approval for event in events if isinstance(event, ApprovalRequired)]


async def test_an_approval_is_a_turn_of_its_own(made: Made, store_url: str, tenant: str) -> None:
    root, paid, _ = paying(call("pay", amount=3), "Something else.", "Paid.")
    async with made(root) as durable:
        with pytest.raises(ApprovalNeededError) as caught:
            await durable.run_and_collect("hi")
        [approval] = caught.value.approvals
        assert await durable.pending() == [approval]
        assert await durable.run_and_collect("and now?") == "Something else."
        assert await durable.run_and_collect([approval.answer(True)]) == "Paid."
        assert (await durable.pending(), paid) == ([], [3])
        with pytest.raises(TurnConflictError):
            await durable.run_and_collect([approval.answer(True)])
        with pytest.raises(ApprovalNotFoundError):
            await durable.run_and_collect([Approval("x", "y", "pay", {}).answer(True)])
        with pytest.raises(TurnConflictError):
            await durable.run_and_collect([])
    async with service(store_url, tenant) as turns:
        states = [turn.state for turn in await turns.of_session(APP)]
    assert states == ["completed", "completed", "answered"]


def two_calls() -> Reply:
    return Reply(calls=tuple(ToolCall(f"c{n}", "pay", input=f'{{"amount": {n}}}') for n in (1, 2)))


async def test_several_approvals_at_once(made: Made) -> None:
    root, paid, provider = paying(two_calls(), "Both are settled.")
    async with made(root) as durable:
        one, two = approvals(await told(durable.stream("hi")))
        events = await told(durable.answer([one.answer(True), two.answer(False)]))
        assert isinstance(events[-1], Completed)
        assert said(events) == [("payer", "Both are settled.")]
        assert (await durable.pending(), paid) == ([], [1])
    assert len(provider.requests) == 2


async def test_one_approval_after_the_other(made: Made) -> None:
    root, paid, _ = paying(two_calls(), "One is paid.", "So is the other.")
    async with made(root) as durable:
        one, two = approvals(await told(durable.stream("hi")))
        events = await told(durable.answer([one.answer(True)]))
        assert isinstance(events[-1], InputRequired)
        assert events[-1].calls == (two.id,)
        assert await durable.pending() == [two]
        assert isinstance((await told(durable.answer([two.answer(True)])))[-1], Completed)
    assert paid == [1, 2]


async def test_an_approval_that_was_asked_for_in_an_answer(made: Made) -> None:
    root, paid, _ = paying(call("pay", amount=1), call("pay", amount=2), "Both are paid.")
    async with made(root) as durable:
        [first] = approvals(await told(durable.stream("hi")))
        [second] = approvals(await told(durable.answer([first.answer(True)])))
        events = await told(durable.answer([second.answer(True)]))
    assert said(events) == [("payer", "Both are paid.")]
    assert paid == [1, 2]


async def test_an_approval_that_no_turn_asked_for(made: Made, store_url: str, tenant: str) -> None:
    """As by another program on the same sessions: it is answered all the same."""
    root, paid, _ = paying(call("pay", amount=3), "Paid.")
    async with SessionServiceAdapter(store_url, tenant=tenant) as sessions:
        runner = AgentRunner(root, sessions, name=APP)
        await told(runner.run("user", "default", "hi"))
    async with made(root) as durable:
        [approval] = await durable.pending()
        events = await told(durable.answer([approval.answer(True)]))
    assert [event.result for event in events if isinstance(event, ToolFinished)]
    assert (said(events), paid) == ([("payer", "Paid.")], [3])
