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

from faults.turns.place import Process, check_log
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


def _worker(here: Process, calls: Sequence[str], tools: Sequence[Any]) -> TurnWorker:
    """A worker of an agent that calls these tools together, and then ends."""

    def rule(request: ModelRequest) -> Reply | str:
        if request.messages[-1].content != "go":
            return "done"
        return Reply(calls=tuple(ToolCall("", name, input="{}") for name in calls))

    model = ModelAdapter(ScriptedProvider(rule=rule), "demo")
    root = LlmAgent(name="agent", model=model, tools=[*tools])
    runner = AgentRunner(root, SessionServiceAdapter(here.store), name=here.place.app)
    return TurnWorker(here.store, here.engine, {here.place.app: DurableAgent(runner, here.store)})


async def _ended(here: Process, turn: str) -> Turn:
    async with asyncio.timeout(30):
        return await here.turns.wait(turn)


async def _answers(here: Process, turn: Turn) -> dict[str, Any]:
    """What the history has as the last response of each tool."""
    rows = await here.store.messages(turn.session, limit=100)
    given = [
        each for row in rows if row.role == "tool" for each in json.loads(row.tool_calls or "")
    ]
    return {each["name"]: each["output"] for each in given}


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_what_has_finished_is_not_told_as_cut_off(
    here: Process, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = TwoTools(fails=how == "failed")
    pair.wait_for_the_other(monkeypatch)
    async with _worker(here, ["quick", "slow"], [pair.quick, pair.slow]):
        turn = await here.say("go")
        await pair.began.wait()
        if how == "cancelled":
            await here.turns.cancel(turn)
        ended = await _ended(here, turn)
    assert ended.state == how
    assert await _answers(here, ended) == {"quick": {"did": "it"}, "slow": {"error": INTERRUPTED}}
    loaded = await here.store.load(ended.session, None)
    assert loaded is not None
    assert loaded.session.state["quick"] == "done"
    events = await here.read(turn)
    check_log(events)
    events_read = {e.data["name"]: e.data.get("error") for e in events if e.type == "tool.finished"}
    assert events_read == {"quick": None, "slow": INTERRUPTED}


async def test_an_approved_payment_that_was_cut_off_is_reported_as_interrupted(
    here: Process,
) -> None:
    pair = TwoTools()
    async with _worker(here, ["slow"], [FunctionTool(pair.slow, require_confirmation=True)]):
        waiting = await _ended(here, await here.say("go"))
        answer = await here.turns.answer(waiting.id, Answer(waiting.waits_for[0], approved=True))
        await pair.began.wait()
        await here.turns.cancel(answer.id)
        ended = await _ended(here, answer.id)
    assert ended.state == "cancelled"
    assert (await _answers(here, ended))["slow"] == {"error": INTERRUPTED}


async def test_a_question_stays_open_when_the_answer_to_another_is_cancelled(here: Process) -> None:
    pair, calls = TwoTools(), ["slow", "quick"]
    tools = [FunctionTool(each, require_confirmation=True) for each in (pair.slow, pair.quick)]
    async with _worker(here, calls, tools):
        waiting = await _ended(here, await here.say("go"))
        answer = await here.turns.answer(
            waiting.id, Answer(await _question(here, waiting, "slow"), True)
        )
        await pair.began.wait()
        await here.turns.cancel(answer.id)
        assert (await _ended(here, answer.id)).state == "cancelled"
        assert (await here.turns.get(waiting.id)).state == "input_required"
        question = await _question(here, waiting, "quick")
        last = await _ended(here, (await here.turns.answer(waiting.id, Answer(question, True))).id)
    assert last.state == "completed"
    assert (await _answers(here, last))["quick"] == {"did": "it"}


async def test_the_answer_to_one_of_two_questions_may_be_repeated(here: Process) -> None:
    pair = TwoTools()
    tools = [FunctionTool(each, require_confirmation=True) for each in (pair.quick, pair.slow)]
    async with _worker(here, ["quick", "slow"], tools):
        waiting = await _ended(here, await here.say("go"))
        answer = Answer(await _question(here, waiting, "quick"), approved=True)
        first = await here.turns.answer(waiting.id, answer, idempotency_key="once")
        await _ended(here, first.id)
        assert (await here.turns.get(waiting.id)).state == "input_required"
        again = await here.turns.answer(waiting.id, answer, idempotency_key="once")
        assert again.id == first.id
        with pytest.raises(TurnConflictError):
            await here.turns.answer(waiting.id, answer, idempotency_key="twice")


async def test_a_session_does_not_wait_for_a_call_that_was_cancelled(here: Process) -> None:
    async def ask() -> None:
        """Ask a person outside this process."""

    pair = TwoTools()
    async with _worker(here, ["ask", "slow"], [LongRunningFunctionTool(ask), pair.slow]):
        turn = await here.say("go")
        await pair.began.wait()
        await here.turns.cancel(turn)
        await _ended(here, turn)
        after = await _ended(here, await here.say("and now?"))
    loaded = await here.store.load(after.session, None)
    assert loaded is not None
    assert loaded.session.open_calls is None


async def _question(here: Process, waiting: Turn, tool: str) -> str:
    """The id of the question about a tool."""
    events = [event for event in await here.read(waiting.id) if event.type == "approval.required"]
    return next(event.data["approval"] for event in events if event.data["name"] == tool)
