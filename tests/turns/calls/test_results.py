"""The later results of long-running calls: delivered once, in order, to the agent that asked."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import (
    BaseAgent,
    SequentialAgent,  # pyright: ignore[reportDeprecated]  # people have them
)
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext

from faults.recovery.kill_shapes import TURN, agent, tool
from faults.turns.processes import Strike, workers
from faults.turns.workspace import TurnProcess, check_log, text_of, types_of
from lango.adk.apps.load import Root
from lango.adk.durable.run import DurableAgent
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.turns.events import Answer
from lango.errors import (
    CallNotFoundError,
    SessionBusyError,
    SessionNotFoundError,
    TurnConflictError,
    TurnNotFoundError,
)
from lango.providers.base import ModelRequest
from lango.store.turns.rows import Turn
from lango.turns.service import Turns
from lango.turns.worker import TurnWorker

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")

GO = f"{TURN} go"
DONE = {"status": "done"}
PENDING = {"status": "pending", "ticket": 7}
CALL = [("file", {"k": "a"})]


def later(interim: Any = None, name: str = "file") -> LongRunningFunctionTool:
    """A tool that returns a first value, or none, and whose result comes from elsewhere."""

    async def file(k: str) -> Any:
        del k
        return interim

    file.__name__, file.__doc__ = name, f"Do {name} elsewhere."
    return LongRunningFunctionTool(file)


def outputs(request: ModelRequest) -> str:
    """What the model has of its tools, as its answer."""
    given = [(c.name, c.output) for m in request.messages if m.is_tool for c in m.tool_calls]
    return "; ".join(f"{name} gave {output}" for name, output in given)


def clerk(interim: Any = PENDING) -> Root:
    return agent("clerk", CALL, outputs, tools=[later(interim)])


def worker(process: TurnProcess, root: Root) -> TurnWorker:
    runner = AgentRunner(root, SessionServiceAdapter(process.store), name=process.workspace.app)
    return TurnWorker(
        process.store, process.engine, {process.workspace.app: DurableAgent(runner, process.store)}
    )


async def ended(process: TurnProcess, turn: str) -> Turn:
    async with asyncio.timeout(60):
        return await process.turns.wait(turn)


async def said(process: TurnProcess, turn: str) -> str:
    return text_of(await process.read(turn))


async def filed(process: TurnProcess) -> tuple[Turn, str]:
    """A turn that waits for the result of a call."""
    turn = await ended(process, await process.say(GO))
    assert (turn.state, len(turn.waits_for)) == ("input_required", 1), turn.error
    return turn, turn.waits_for[0]


async def results(process: TurnProcess, turn: Turn) -> list[Any]:
    """What the history has of the call, in order."""
    rows = await process.store.messages(turn.session, limit=100)
    return [
        each["output"]
        for row in rows
        if row.role == "tool"
        for each in json.loads(row.tool_calls or "[]")
        if each["name"] == "file"
    ]


@pytest.mark.parametrize("interim", [None, PENDING], ids=["none", "pending"])
async def test_a_result_reaches_the_agent(process: TurnProcess, interim: Any) -> None:
    async with worker(process, clerk(interim)):
        waiting, call = await filed(process)
        assert (await ended(process, await process.say("hello?"))).state == "completed"
        turn = await process.turns.deliver(waiting.id, call, DONE)
        assert turn.invocation_id == waiting.invocation_id
        assert (await ended(process, turn.id)).state == "completed"
        assert (await said(process, turn.id)).endswith(': file gave {"status":"done"}')
        assert (await process.turns.get(waiting.id)).state == "answered"
        after = await process.say("and now?")
        assert (await ended(process, after)).state == "completed"
        assert 'file gave {"status":"done"}' in await said(process, after)
    assert await results(process, waiting) == [*([interim] if interim else []), DONE]
    events = await process.read(turn.id)
    check_log(events)
    [finished] = [event.data for event in events if event.type == "tool.finished"]
    assert (finished["call"], finished["result"]) == (call, DONE)


async def test_a_result_keeps_the_order_of_the_session(process: TurnProcess) -> None:
    async with worker(process, clerk()):
        waiting, call = await filed(process)
    before = await process.say("one")
    result = await process.turns.deliver(waiting.id, call, DONE)
    behind = await process.say("two")
    async with worker(process, clerk()):  # another one, as after a restart
        turns = [await ended(process, turn) for turn in (before, result.id, behind)]
    assert [turn.state for turn in turns] == ["completed"] * 3
    starts = [turn.started or 0.0 for turn in turns]
    assert starts == sorted(starts)


@pytest.mark.parametrize(
    ("result", "seen"),
    [
        (None, {"result": None}),
        ("sent", {"result": "sent"}),
        ([1, 2], {"result": [1, 2]}),
        ({}, {}),
        ({"error": "lost"}, {"error": "lost"}),
        ({"text": "x" * 300_000}, None),
    ],
    ids=["null", "text", "list", "empty", "error", "large"],
)
async def test_a_result_is_any_json(process: TurnProcess, result: Any, seen: Any) -> None:
    async with worker(process, clerk()):
        waiting, call = await filed(process)
        turn = await ended(process, (await process.turns.deliver(waiting.id, call, result)).id)
    assert turn.state == "completed", turn.error
    if seen is not None:
        assert (await results(process, waiting))[-1] == seen


async def test_the_same_result_again_is_the_same_turn(process: TurnProcess) -> None:
    async with worker(process, clerk()):
        waiting, call = await filed(process)
        first = await process.turns.deliver(waiting.id, call, DONE)
        assert (await process.turns.deliver(waiting.id, call, DONE)).id == first.id
        await ended(process, first.id)
        assert (await process.turns.deliver(waiting.id, call, DONE)).id == first.id
        with pytest.raises(TurnConflictError, match="answered already"):
            await process.turns.deliver(waiting.id, call, {"status": "other"})
        with pytest.raises(TurnConflictError, match="answered already"):
            await process.turns.answer(waiting.id, Answer(call, approved=True))
    assert await results(process, waiting) == [PENDING, DONE]


async def test_a_key_belongs_to_one_result(process: TurnProcess) -> None:
    async with worker(process, clerk()):
        waiting, call = await filed(process)
        first = await process.turns.deliver(waiting.id, call, DONE, idempotency_key="k")
        for key in ("k", None, "another"):
            again = await process.turns.deliver(waiting.id, call, DONE, idempotency_key=key)
            assert again.id == first.id
        with pytest.raises(TurnConflictError, match="idempotency key"):
            await process.turns.deliver(waiting.id, call, {}, idempotency_key="k")


@pytest.mark.parametrize("same", [True, False])
async def test_results_that_come_together_are_taken_once(process: TurnProcess, same: bool) -> None:
    async with worker(process, clerk()):
        waiting, call = await filed(process)
        given = [DONE if same else {"status": number} for number in range(5)]
        turns = await asyncio.gather(
            *(process.turns.deliver(waiting.id, call, one) for one in given), return_exceptions=True
        )
        accepted = {one.id for one in turns if isinstance(one, Turn)}
        refused = [one for one in turns if isinstance(one, TurnConflictError)]
        assert (len(accepted), len(refused)) == (1, 0 if same else 4)
        await ended(process, accepted.pop())
    assert len(await results(process, waiting)) == 2


async def test_a_result_that_comes_while_the_turn_runs_is_to_be_sent_again(
    process: TurnProcess,
) -> None:
    refused: list[Exception] = []

    async def file(k: str, tool_context: ToolContext) -> dict[str, Any]:
        """File a ticket with a system that is very quick."""
        del k
        with pytest.raises(SessionBusyError) as busy:
            await process.turns.deliver(
                tool_context.invocation_id, tool_context.function_call_id or "", DONE
            )
        refused.append(busy.value)
        return PENDING

    async with worker(
        process, agent("clerk", CALL, outputs, tools=[LongRunningFunctionTool(file)])
    ):
        waiting, call = await filed(process)
        turn = await process.turns.deliver(waiting.id, call, DONE)
        assert (await ended(process, turn.id)).state == "completed"
    assert len(refused) == 1


async def test_a_call_is_found_by_what_its_tool_knows(process: TurnProcess) -> None:
    """A tool knows its invocation, which has the id of the invocation's first turn."""
    steps = (CALL, [("ship", {"k": "b"})], outputs)
    async with worker(process, agent("clerk", *steps, tools=[later(), later(None, "ship")])):
        waiting, call = await filed(process)
        second = await ended(process, (await process.turns.deliver(waiting.id, call, DONE)).id)
        assert (second.state, second.invocation_id) == ("input_required", waiting.id)
        [shipping] = second.waits_for
        turn = await process.turns.deliver(waiting.id, shipping, {"status": "shipped"})
        assert (await ended(process, turn.id)).state == "completed"
        assert "shipped" in await said(process, turn.id)
    assert {one.state for one in await process.turns.of_session(process.workspace.app)} == {
        *("answered", "completed")
    }


async def test_each_of_two_calls_gets_its_result(process: TurnProcess) -> None:
    calls = [("file", {"k": "a"}), ("ship", {"k": "b"})]
    tools = [later(PENDING), later(None, "ship")]
    async with worker(process, agent("clerk", calls, outputs, tools=tools)):
        waiting = await ended(process, await process.say(GO))
        events = [
            event.data for event in await process.read(waiting.id) if event.type == "tool.started"
        ]
        ids = {event["name"]: event["call"] for event in events}
        first = await ended(
            process, (await process.turns.deliver(waiting.id, ids["ship"], "sent")).id
        )
        assert (first.state, first.waits_for) == ("input_required", (ids["file"],))
        last = await ended(process, (await process.turns.deliver(waiting.id, ids["file"], DONE)).id)
        assert last.state == "completed"
        assert "done" in await said(process, last.id)
        assert "sent" in await said(process, last.id)


async def test_an_approval_is_no_result(process: TurnProcess) -> None:
    pay = tool("pay", require_confirmation=True)
    async with worker(process, agent("clerk", [("pay", {"k": "a"})], outputs, tools=[pay])):
        waiting = await ended(process, await process.say(GO))
        [event] = [e.data for e in await process.read(waiting.id) if e.type == "approval.required"]
        for call in (event["approval"], event["call"]):
            with pytest.raises(TurnConflictError, match="waits for an approval"):
                await process.turns.deliver(waiting.id, call, DONE)
        assert (await process.turns.get(waiting.id)).state == "input_required"


async def test_a_call_that_nothing_waits_for_is_missing(process: TurnProcess) -> None:
    async with worker(process, clerk()):
        waiting, call = await filed(process)
        other = await ended(process, await process.say("hello?"))
        for turn, wrong in ((waiting, "call_1"), (other, call)):
            with pytest.raises(CallNotFoundError):
                await process.turns.deliver(turn.id, wrong, DONE)
        elsewhere = Turns(process.store, process.engine, tenant="another")
        with pytest.raises(TurnNotFoundError):
            await elsewhere.deliver(waiting.id, call, DONE)


async def test_a_result_for_a_deleted_session_is_refused(process: TurnProcess) -> None:
    async with worker(process, clerk()):
        waiting, call = await filed(process)
    queued = await process.turns.deliver(waiting.id, call, DONE)
    await process.store.delete(waiting.session)
    for turn in (waiting, queued):
        with pytest.raises(TurnNotFoundError):
            await process.turns.deliver(turn.id, call, DONE)
    async with worker(process, clerk()):
        await ended(process, await process.say("a new session of that name"))
    with pytest.raises((TurnNotFoundError, SessionNotFoundError)):
        await process.turns.deliver(waiting.id, call, DONE)


async def test_a_result_whose_turn_was_cancelled_can_be_delivered_again(
    process: TurnProcess,
) -> None:
    async with worker(process, clerk()):
        waiting, call = await filed(process)
    first = await process.turns.deliver(waiting.id, call, DONE)
    await process.turns.cancel(first.id)
    assert (await process.turns.get(waiting.id)).state == "input_required"
    second = await process.turns.deliver(waiting.id, call, DONE)
    assert second.id != first.id
    async with worker(process, clerk()):
        assert (await ended(process, second.id)).state == "completed"
    assert await results(process, waiting) == [PENDING, DONE]


@pytest.mark.parametrize("point", ["turn.start", "append.after", "model.start", "turn.unmarked"])
async def test_a_worker_that_dies_leaves_the_result_to_another(
    process: TurnProcess, point: str
) -> None:
    with workers(process.workspace):
        waiting = await ended(process, await process.say('call errand {"name": "a"}'))
        [call] = waiting.waits_for
    turn = await process.turns.deliver(waiting.id, call, DONE)
    with workers(process.workspace, strike=Strike(point)) as (doomed,):
        doomed.join()
        with workers(process.workspace):
            assert (await ended(process, turn.id)).state == "completed"
    events = await process.read(turn.id)
    check_log(events)
    assert types_of(events).count("tool.finished") == 1
    assert text_of(events) == 'I asked: errand gave {"status":"done"}.'
    rows = await process.store.messages(waiting.session, limit=100)
    assert [row.role for row in rows].count("tool") == 2
    assert process.workspace.effects.words() == ["sent a"]


def _sequence(one: BaseAgent) -> BaseAgent:
    return SequentialAgent(name="root", sub_agents=[one, agent("last", "L")])  # pyright: ignore[reportDeprecated]


def _transfer(one: BaseAgent) -> BaseAgent:
    step = [("transfer_to_agent", {"agent_name": one.name})]
    return agent("root", step, "root end", sub_agents=[one])


def _in_sequence_below(one: BaseAgent) -> BaseAgent:
    inner = _sequence(one)
    inner.name = "inner"
    return _transfer(inner)


CONTAINERS: dict[str, tuple[Callable[[BaseAgent], BaseAgent], list[str]]] = {
    "sub-agent": (_transfer, ["clerk"]),
    "sequence": (_sequence, ["clerk", "last"]),
}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("interim", [None, PENDING], ids=["none", "pending"])
async def test_the_agents_around_go_on(process: TurnProcess, name: str, interim: Any) -> None:
    contain, speakers = CONTAINERS[name]
    one = agent("clerk", CALL, outputs, tools=[later(interim)])
    async with worker(process, contain(one)):
        waiting, call = await filed(process)
        assert (await ended(process, await process.say("hello?"))).state == "completed"
        turn = await ended(process, (await process.turns.deliver(waiting.id, call, DONE)).id)
        assert turn.state == "completed", turn.error
        result = [
            e.data["author"] for e in await process.read(turn.id) if e.type == "message.completed"
        ]
    assert result == speakers


@pytest.mark.parametrize("interim", [None, PENDING], ids=["none", "pending"])
async def test_where_the_agents_around_could_not_go_on_a_result_is_refused(
    process: TurnProcess, interim: Any
) -> None:
    one = agent("clerk", CALL, outputs, tools=[later(interim)])
    async with worker(process, _in_sequence_below(one)):
        waiting, call = await filed(process)
        turn = await ended(process, (await process.turns.deliver(waiting.id, call, DONE)).id)
    assert (turn.state, (turn.error or {})["type"]) == ("failed", "NotResumableError")
    assert "inner" in (turn.error or {})["message"]
    assert (await process.turns.get(waiting.id)).state == "input_required"
    assert DONE not in await results(process, waiting)


async def test_an_agent_that_runs_as_a_tool_cannot_wait(process: TurnProcess) -> None:
    helper = agent("helper", CALL, "never", tools=[later(None)])
    ask = [("helper", {"request": GO})]
    async with worker(process, agent("root", ask, outputs, tools=[AgentTool(helper)])):
        turn = await ended(process, await process.say(GO))
        assert turn.state == "completed"
        assert "cannot wait for the result of file" in await said(process, turn.id)


async def test_the_agent_sees_what_happened_meanwhile(process: TurnProcess) -> None:
    """Else it would do again what it has done since."""
    steps = (CALL, [("pay", {"k": "b"})], outputs)
    seen: list[list[str]] = []

    def look(request: ModelRequest) -> str:
        seen.append([message.content for message in request.messages if message.role == "user"])
        return outputs(request)

    root = agent("clerk", *steps[:2], look, tools=[later(), tool("pay")])
    async with worker(process, root):
        waiting, call = await filed(process)
        assert (await ended(process, await process.say("and my order?"))).state == "completed"
        turn = await ended(process, (await process.turns.deliver(waiting.id, call, DONE)).id)
        assert turn.state == "completed"
        result = await said(process, turn.id)
    assert "pay gave" in result
    assert result.endswith('file gave {"status":"done"}')
    assert seen[-1] == [GO, "and my order?"]
    rows = await process.store.messages(waiting.session, limit=100)
    assert sum('"pay"' in (row.tool_calls or "") for row in rows if row.role == "tool") == 1


async def test_until_then_the_model_reads_that_the_result_is_pending(process: TurnProcess) -> None:
    async with worker(process, clerk(None)):
        await filed(process)
        between = await process.say("hello?")
        await ended(process, between)
        assert 'file gave {"status":"pending"' in await said(process, between)


async def test_state_that_came_with_the_message_is_not_set_again(process: TurnProcess) -> None:
    async def file(k: str, tool_context: ToolContext) -> dict[str, Any]:
        """File a ticket."""
        del k
        tool_context.state["step"] = "filed"
        return PENDING

    root = agent("clerk", CALL, outputs, tools=[LongRunningFunctionTool(file)])
    async with worker(process, root):
        turn = await process.say(GO, options={"state": {"step": "new"}})
        waiting = await ended(process, turn)
        await ended(
            process, (await process.turns.deliver(waiting.id, waiting.waits_for[0], DONE)).id
        )
    loaded = await process.store.load(waiting.session, None)
    assert loaded is not None
    assert loaded.session.state["step"] == "filed"
