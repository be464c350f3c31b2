"""Tool outputs too large for a row: one stored copy, which message, ledger and log refer to."""

import asyncio
import json

import sqlalchemy as sa
from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool

from faults.turns.workspace import TurnProcess
from lango.adk.artifacts import SqlArtifactService
from lango.adk.durable.run import DurableAgent
from lango.adk.models.adapter import ModelAdapter
from lango.adk.runner import AgentRunner
from lango.adk.sessions.normalise import MAX_OUTPUT
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.messages.messages import ToolCall
from lango.providers.base import ModelRequest
from lango.providers.scripted import Reply, ScriptedProvider
from lango.store.schema.tables import artifacts, messages, tool_ledger, turn_events
from lango.turns.worker import TurnWorker

WHOLE = {"rows": "x" * (2 * MAX_OUTPUT)}
ROOM = 10_000  # bytes: the marker has a head of 2,000 characters


async def dump() -> dict[str, str]:
    """Give a large output."""
    return WHOLE


def _model(tool: str, arguments: dict[str, str]) -> ModelAdapter:
    def rule(request: ModelRequest) -> Reply:
        if request.messages[-1].is_tool:
            return Reply("done")
        return Reply(calls=(ToolCall("", tool, input=json.dumps(arguments)),))

    return ModelAdapter(ScriptedProvider(rule=rule), "demo")


def _agent() -> LlmAgent:
    helper = LlmAgent(name="helper", model=_model("dump", {}), tools=[dump])
    model = _model("helper", {"request": "hello"})
    return LlmAgent(name="root", model=model, tools=[AgentTool(helper)])


def _direct() -> LlmAgent:
    return LlmAgent(name="root", model=_model("dump", {}), tools=[dump])


async def _sizes(process: TurnProcess, session_pk: int, *columns: sa.Column[str]) -> list[int]:
    async with process.store.database.snapshot() as connection:
        found: list[int] = []
        for column in columns:
            text = sa.func.length(sa.cast(column, sa.Text))
            condition = column.table.c.session_pk == session_pk
            found += (await connection.execute(sa.select(text).where(condition))).scalars()
    return [size for size in found if size]


async def _run(process: TurnProcess, agent: LlmAgent) -> int:
    sessions, app = SessionServiceAdapter(process.store), process.workspace.app
    runner = AgentRunner(agent, sessions, SqlArtifactService(process.store), name=app)
    async with TurnWorker(
        process.store, process.engine, {app: DurableAgent(runner, process.store)}
    ):
        async with asyncio.timeout(60):
            turn = await process.turns.wait(await process.say("hello"))
    assert turn.state == "completed", turn.error
    return turn.session_pk


async def _kept(process: TurnProcess) -> list[int]:
    condition = artifacts.c.app_name == process.workspace.app
    async with process.store.database.snapshot() as connection:
        return list(
            (await connection.execute(sa.select(artifacts.c.size).where(condition))).scalars()
        )


async def test_a_large_output_is_kept_once(process: TurnProcess) -> None:
    pk = await _run(process, _direct())
    rows = (tool_ledger.c.result, turn_events.c.data, messages.c.tool_calls)
    assert max(await _sizes(process, pk, *rows)) < ROOM
    assert [size > 2 * MAX_OUTPUT for size in await _kept(process)] == [True]


async def test_a_large_output_of_an_agent_in_a_tool_is_kept_once(process: TurnProcess) -> None:
    """Its session is another one, its ledger that of the turn."""
    pk = await _run(process, _agent())
    assert len(await _sizes(process, pk, tool_ledger.c.result)) == 2
    assert max(await _sizes(process, pk, tool_ledger.c.result, turn_events.c.data)) < ROOM
    assert [size > 2 * MAX_OUTPUT for size in await _kept(process)] == [True]
