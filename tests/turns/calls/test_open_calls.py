"""Calls that are open when a turn is cancelled or fails: answered by what their tools gave."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext

from faults.turns.workspace import TurnProcess, check_log
from lango.adk.durable.ledger import INTERRUPTED
from lango.adk.durable.run import DurableAgent
from lango.adk.models.adapter import ModelAdapter
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.messages.messages import ToolCall
from lango.core.turns.events import Answer
from lango.errors import TurnConflictError
from lango.providers.base import ModelRequest
from lango.providers.scripted import Reply, ScriptedProvider
from lango.store.turns.ledger import ToolLedger
from lango.store.turns.rows import Turn
from lango.turns.worker import TurnWorker


class TwoTools:
    """Tools of which one is done before the other, which does not end by itself."""

    def __init__(self, *, fails: bool = False) -> None:
        self.began = asyncio.Event()
        self.other_finished = asyncio.Event()
        self.other_finished.set()
        self.fails = fails

    def wait_for_the_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the slow tool begin its work when the ledger has the result of the other one."""
        self.other_finished.clear()
        finish = ToolLedger.finish

        async def finished(ledger: ToolLedger, *given: Any) -> None:
            await finish(ledger, *given)
            self.other_finished.set()

        monkeypatch.setattr(ToolLedger, "finish", finished)

    async def quick(self, tool_context: ToolContext) -> dict[str, str]:
        """Do something at once."""
        tool_context.state["quick"] = "done"
        return {"did": "it"}

    async def slow(self) -> str:
        """Do something that takes long."""
        await self.other_finished.wait()
        self.began.set()
        if self.fails:
            raise ValueError("out of order")
        await asyncio.sleep(60)
        return "never"


def _worker(process: TurnProcess, calls: Sequence[str], tools: Sequence[Any]) -> TurnWorker:
    """A worker of an agent that calls these tools together, and then ends."""

    def rule(request: ModelRequest) -> Reply | str:
        if request.messages[-1].content != "go":
            return "done"
        return Reply(calls=tuple(ToolCall("", name, input="{}") for name in calls))

    model = ModelAdapter(ScriptedProvider(rule=rule), "demo")
    root = LlmAgent(name="agent", model=model, tools=[*tools])
    runner = AgentRunner(root, SessionServiceAdapter(process.store), name=process.workspace.app)
    return TurnWorker(
        process.store, process.engine, {process.workspace.app: DurableAgent(runner, process.store)}
    )


async def _ended(process: TurnProcess, turn: str) -> Turn:
    async with asyncio.timeout(30):
        return await process.turns.wait(turn)


async def _answers(process: TurnProcess, turn: Turn) -> dict[str, Any]:
    """What the history has as the last response of each tool."""
    rows = await process.store.messages(turn.session, limit=100)
    given = [
        each for row in rows if row.role == "tool" for each in json.loads(row.tool_calls or "")
    ]
    return {each["name"]: each["output"] for each in given}


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_what_has_finished_is_not_told_as_cut_off(
    process: TurnProcess, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = TwoTools(fails=how == "failed")
    pair.wait_for_the_other(monkeypatch)
    async with _worker(process, ["quick", "slow"], [pair.quick, pair.slow]):
        turn = await process.say("go")
        await pair.began.wait()
        if how == "cancelled":
            await process.turns.cancel(turn)
        ended = await _ended(process, turn)
    assert ended.state == how
    assert await _answers(process, ended) == {
        "quick": {"did": "it"},
        "slow": {"error": INTERRUPTED},
    }
    loaded = await process.store.load(ended.session, None)
    assert loaded is not None
    assert loaded.session.state["quick"] == "done"
    events = await process.read(turn)
    check_log(events)
    events_read = {e.data["name"]: e.data.get("error") for e in events if e.type == "tool.finished"}
    assert events_read == {"quick": None, "slow": INTERRUPTED}


async def test_an_approved_payment_that_was_cut_off_is_reported_as_interrupted(
    process: TurnProcess,
) -> None:
    pair = TwoTools()
    async with _worker(process, ["slow"], [FunctionTool(pair.slow, require_confirmation=True)]):
        waiting = await _ended(process, await process.say("go"))
        answer = await process.turns.answer(waiting.id, Answer(waiting.waits_for[0], approved=True))
        await pair.began.wait()
        await process.turns.cancel(answer.id)
        ended = await _ended(process, answer.id)
    assert ended.state == "cancelled"
    assert (await _answers(process, ended))["slow"] == {"error": INTERRUPTED}


async def test_a_question_stays_open_when_the_answer_to_another_is_cancelled(
    process: TurnProcess,
) -> None:
    pair, calls = TwoTools(), ["slow", "quick"]
    tools = [FunctionTool(each, require_confirmation=True) for each in (pair.slow, pair.quick)]
    async with _worker(process, calls, tools):
        waiting = await _ended(process, await process.say("go"))
        answer = await process.turns.answer(
            waiting.id, Answer(await _question(process, waiting, "slow"), True)
        )
        await pair.began.wait()
        await process.turns.cancel(answer.id)
        assert (await _ended(process, answer.id)).state == "cancelled"
        assert (await process.turns.get(waiting.id)).state == "input_required"
        question = await _question(process, waiting, "quick")
        last = await _ended(
            process, (await process.turns.answer(waiting.id, Answer(question, True))).id
        )
    assert last.state == "completed"
    assert (await _answers(process, last))["quick"] == {"did": "it"}


async def test_the_answer_to_one_of_two_questions_may_be_repeated(process: TurnProcess) -> None:
    pair = TwoTools()
    tools = [FunctionTool(each, require_confirmation=True) for each in (pair.quick, pair.slow)]
    async with _worker(process, ["quick", "slow"], tools):
        waiting = await _ended(process, await process.say("go"))
        answer = Answer(await _question(process, waiting, "quick"), approved=True)
        first = await process.turns.answer(waiting.id, answer, idempotency_key="once")
        await _ended(process, first.id)
        assert (await process.turns.get(waiting.id)).state == "input_required"
        again = await process.turns.answer(waiting.id, answer, idempotency_key="once")
        assert again.id == first.id
        with pytest.raises(TurnConflictError):
            await process.turns.answer(waiting.id, answer, idempotency_key="twice")


async def test_a_session_does_not_wait_for_a_call_that_was_cancelled(process: TurnProcess) -> None:
    async def ask() -> None:
        """Ask a person outside this process."""

    pair = TwoTools()
    async with _worker(process, ["ask", "slow"], [LongRunningFunctionTool(ask), pair.slow]):
        turn = await process.say("go")
        await pair.began.wait()
        await process.turns.cancel(turn)
        await _ended(process, turn)
        after = await _ended(process, await process.say("and now?"))
    loaded = await process.store.load(after.session, None)
    assert loaded is not None
    assert loaded.session.open_calls is None


async def _question(process: TurnProcess, waiting: Turn, tool: str) -> str:
    """The id of the question about a tool."""
    events = [
        event for event in await process.read(waiting.id) if event.type == "approval.required"
    ]
    return next(event.data["approval"] for event in events if event.data["name"] == tool)
