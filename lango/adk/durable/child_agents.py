"""Runs an agent as a tool, in a stored child session.

ADK's AgentTool runs its agent in memory: after an interruption, all of it runs again. Here the
child session and its invocation are named after the call, so the agent resumes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App
from google.adk.events.event import Event
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import BaseNode
from google.genai import types

from lango.adk.compat.agent_tool import (
    checked_answer,
    forwarded_artifacts,
    is_own_state,
    part_text,
    request_text,
)
from lango.adk.durable.calls.open_calls import open_calls
from lango.adk.durable.journal import agent_positions
from lango.adk.durable.output_key import output_keys
from lango.adk.durable.resume import Resumed, load, resumable
from lango.adk.plugins.records import RecordingPlugin
from lango.adk.sessions.encode import split_state
from lango.adk.tools.approvals import QUESTIONS
from lango.core.ids import MAX_ID_LENGTH
from lango.core.turns.events import LEAKED_CANCELLATION
from lango.core.values import storable_json
from lango.store.sessions.entries import SessionKey, StateChange

if TYPE_CHECKING:
    from lango.adk.durable.claimed.sessions import ClaimedSessions

ForChild = Callable[[str], "ClaimedSessions"]
"""Returns the session service for the invocation of a child."""
Prepare = Callable[[BaseNode], BaseNode]
"""Prepares an agent for resuming."""
_NOT_STREAMING: Final = RunConfig.model_validate({"streaming_mode": None}).streaming_mode
_CANNOT_WAIT: Final = (
    "An agent that runs as a tool cannot wait for the result of {tool}, which comes later and has "
    "no way to it. Let the calling agent use {tool} itself, or transfer to the agent."
)


def runs_a_child(tool: BaseTool) -> bool:
    """Whether a tool is ADK's plain AgentTool, and not a subclass."""
    return type(tool) is AgentTool


def child_id(invocation_id: str, call_id: str) -> str:
    """The id of a call's child session and its invocation."""
    name = f"{invocation_id}/{call_id}"
    return name if len(name) <= MAX_ID_LENGTH // 2 else sha256(name.encode()).hexdigest()


class ChildAgents:
    """Runs the agents that a turn's tools call."""

    def __init__(self, for_child: ForChild, prepare: Prepare) -> None:
        self._for_child = for_child
        self._prepare = prepare

    async def run(
        self, tool: AgentTool, args: dict[str, Any], context: ToolContext
    ) -> dict[str, Any]:
        """The agent's answer; from its child session if it has already answered."""
        if tool.skip_summarization:
            context.actions.skip_summarization = True
        name = child_id(context.invocation_id, context.function_call_id or "")
        sessions = self._for_child(name)
        sessions.output_keys = output_keys(tool.agent)
        sessions.agent_positions = agent_positions(tool.agent)
        parent_session = context.session
        key = SessionKey(sessions.tenant, parent_session.app_name, parent_session.user_id, name)
        await sessions.writes.open_child(key, _initial_state(context))
        message = types.Content(role="user", parts=[types.Part(text=request_text(tool, args))])
        runner = _runner(tool, self._prepare(tool.agent), context, sessions)
        resumed = await resumable(runner, sessions, key, f"{name}.user", message)
        for event in (*resumed.stored, *resumed.repaired):
            _pass_on(event, context)
        await _drive(runner, key, name, resumed, context)
        session = await load(sessions, key)
        events = session.events if session else []
        cut_off = _cut_off(events)
        return {"error": cut_off} if cut_off else {"result": _answer(tool, events)}


def _initial_state(context: ToolContext) -> StateChange:
    """The caller's session state; the child already shares its app and user state."""
    state = {k: v for k, v in context.state.to_dict().items() if not is_own_state(k)}
    return StateChange(split_state(storable_json(state)).session)


def _runner(
    tool: AgentTool, root: BaseNode, context: ToolContext, sessions: ClaimedSessions
) -> Runner:
    invocation = context.get_invocation_context()
    plugins = invocation.plugin_manager.plugins if tool.include_plugins else []
    own_plugins = [
        plugin for plugin in invocation.plugin_manager.plugins if _is_always_included(plugin)
    ]
    runner = Runner(
        app=App(
            name=context.session.app_name,
            root_agent=root,
            plugins=list(plugins or own_plugins),
            resumability_config=invocation.resumability_config,
        ),
        artifact_service=forwarded_artifacts(context),
        session_service=sessions,
        memory_service=invocation.memory_service,
        credential_service=invocation.credential_service,
    )
    runner.plugin_manager.set_skip_closing_plugins(True)  # the turn closes them
    return runner


def _is_always_included(plugin: BasePlugin) -> bool:
    """Whether a child always has this plugin, even without its caller's: it keeps records."""
    return isinstance(plugin, RecordingPlugin) or plugin.name.startswith("lango_ledger")


async def _drive(
    runner: Runner, key: SessionKey, invocation_id: str, resumed: Resumed, context: ToolContext
) -> None:
    invocation = context.get_invocation_context()
    config = (invocation.run_config or RunConfig()).model_copy(
        update={"streaming_mode": _NOT_STREAMING, "support_cfc": False}
    )
    run = runner.run_async(
        user_id=key.user_id,
        session_id=key.session_id,
        invocation_id=invocation_id,
        new_message=resumed.message,
        run_config=config,
    )
    async with aclosing(run) as events:
        async for event in events:
            _pass_on(event, context)
            if invocation.is_aborted:
                break


def _pass_on(event: Event, context: ToolContext) -> None:
    """Apply the state and artifact changes of an agent's event to the caller's context.

    Events that only change state are seen only here: a loaded session has their changes, but not
    the events.
    """
    context.state.update(event.actions.state_delta)
    context.actions.artifact_delta.update(event.actions.artifact_delta)


def _cut_off(events: list[Event]) -> str:
    """The error for an agent that ended during a call, which ADK does silently; else empty."""
    unanswered = [
        (call.name, call.id in (event.long_running_tool_ids or ()))
        for event, call in open_calls(events)
        if call.name not in QUESTIONS
    ]
    if not unanswered:
        return ""
    name, is_long_running = min(reversed(unanswered), key=lambda call: call[1])
    if is_long_running:
        return _CANNOT_WAIT.format(tool=name)
    return f"The agent was cut off while it ran {name}. {LEAKED_CANCELLATION}"


def _answer(tool: AgentTool, events: list[Event]) -> Any:
    messages = [event for event in events if event.author != "user" and event.content]
    parts = (messages[-1].content.parts or []) if messages and messages[-1].content else []
    texts = (part_text(part) for part in parts if not part.thought)
    text = "\n".join(line for line in texts if line)
    if not text:
        return next((event.error_message for event in reversed(events) if event.error_message), "")
    return checked_answer(tool, text)
