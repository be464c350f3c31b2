"""Keys that no index of PostgreSQL could hold: refused alike on both databases, and no more."""

import asyncio
import json
import secrets

from google.adk.agents import LlmAgent
from google.adk.tools.tool_context import ToolContext

from faults.turns.workspace import TurnProcess
from lango.adk.artifacts import SqlArtifactService
from lango.adk.durable.run import DurableAgent
from lango.adk.models.adapter import ModelAdapter
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.ids import MAX_KEY_BYTES
from lango.core.messages.messages import ToolCall
from lango.providers.base import ModelRequest
from lango.providers.scripted import Reply, ScriptedProvider
from lango.turns.worker import TurnWorker

LONG = secrets.token_hex(MAX_KEY_BYTES)  # the server compresses what repeats itself


async def remember(tool_context: ToolContext) -> dict[str, str]:
    """Remember something."""
    tool_context.state["user:fine"] = "kept"
    tool_context.state[f"user:{LONG}"] = "lost"
    return {"done": "yes"}


def _agent() -> LlmAgent:
    def rule(request: ModelRequest) -> Reply:
        if request.messages[-1].is_tool:
            return Reply("done")
        return Reply(calls=(ToolCall("", remember.__name__, input=json.dumps({})),))

    model = ModelAdapter(ScriptedProvider(rule=rule), "demo")
    return LlmAgent(name="root", model=model, tools=[remember])


async def test_a_tool_gets_an_error_for_a_state_key_that_is_too_long(process: TurnProcess) -> None:
    sessions, app = SessionServiceAdapter(process.store), process.workspace.app
    runner = AgentRunner(_agent(), sessions, SqlArtifactService(process.store), name=app)
    async with (
        TurnWorker(process.store, process.engine, {app: DurableAgent(runner, process.store)}),
        asyncio.timeout(60),
    ):
        turns = [await process.turns.wait(await process.say(text)) for text in ("one", "two")]
    assert [turn.state for turn in turns] == ["completed", "completed"]
    finished = [e for e in await process.read(turns[0].id) if e.type == "tool.finished"]
    assert ["state key" in event.data["error"] for event in finished] == [True]
    loaded = await sessions.get_session(app_name=app, user_id="user", session_id="default")
    assert loaded is not None
    assert {name for name in loaded.state if name.startswith("user:")} == {"user:fine"}
