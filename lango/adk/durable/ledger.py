"""The tool ledger as ADK plugins, so that it covers every tool of an app.

There are two, because other plugins may answer a call or change a result: `LedgerPlugin` comes last
and decides whether a tool runs, `LedgerKeeper` comes first and records the tool's result.
"""

from __future__ import annotations

import inspect
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, cast

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.llm_agent import LlmAgent
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions.session import Session
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from lango.adk.credentials.turn import TurnCredentials
from lango.adk.durable.calls.ids import TurnCallIds, without_doubles
from lango.adk.durable.calls.long_running import show_pending
from lango.adk.durable.child_agents import ChildAgents, runs_a_child
from lango.adk.durable.delta_route import is_direct
from lango.adk.durable.progress import TurnProgress
from lango.adk.mcp.progress import report_progress_of
from lango.adk.models.caller import call_key, note_caller
from lango.adk.models.direct_deltas import DirectDeltas
from lango.adk.sessions.encode import dumped_actions, split_state
from lango.adk.sessions.normalise import storable_actions
from lango.adk.tools.adapter import ToolAdapter
from lango.adk.turn_events import ABORTED
from lango.core.failpoints import failpoint
from lango.core.values import storable_json
from lango.errors import InvalidIdError
from lango.store.turns.holding import Holding
from lango.store.turns.ledger import UNKNOWN, Finished, ToolLedger, ToolRun
from lango.store.turns.rows import Claim

INTERRUPTED: Final = "interrupted, outcome unknown"
_ADVICE: Final = (
    "The worker died while this ran. It may have happened or not: check before trying again."
)
_MARK: Final = "idempotent"
_OF_ADK: Final = "google.adk."
_CHANGE_ONLY_THE_TURN: Final = frozenset(
    {"transfer_to_agent", "exit_loop", "set_model_response", "load_artifacts", "load_memory"}
)
"""ADK's own tools that are safe to repeat."""


@dataclass(slots=True)
class RunningCall:
    """The running call, and how often it has saved each artifact."""

    call: str
    idempotent: bool = False
    tool_call: str = ""  # the id of a tool's call; empty for functions of a Workflow
    saves: Counter[str] = field(default_factory=Counter[str])

    def next_id(self, name: str) -> str:
        """An id that is the same in every attempt for the same save of the same call."""
        self.saves[name] += 1
        return f"{self.call}#{self.saves[name]}"


saving: ContextVar[RunningCall | None] = ContextVar("lango_saving", default=None)


class LedgerPlugin(BasePlugin):
    """Answers a call from the ledger, or records it before its tool runs."""

    def __init__(
        self,
        ledger: ToolLedger,
        claim: Claim,
        children: ChildAgents,
        credentials: TurnCredentials,
        progress: TurnProgress,
    ) -> None:
        super().__init__("lango_ledger")
        self.credentials = credentials
        self.progress = progress
        self._ledger = ledger
        self._claim = claim
        self._children = children
        self.call_ids = TurnCallIds()
        self.started: set[tuple[str, str]] = set()

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """The recorded result of the call; None to run its tool."""
        self.call_ids.learn(tool_context.session)
        if not await _takes_effect(tool, tool_args, tool_context):
            return None
        run = tool_run(tool, tool_args, tool_context)
        verdict = await self._ledger.start(self._claim, run)
        if isinstance(verdict, Finished):
            return _recorded_result(verdict, tool, tool_context)
        self.started.add((run.invocation_id, run.call_key))
        name = f"{run.invocation_id}/{run.call_key}"
        saving.set(RunningCall(name, run.idempotent, tool_context.function_call_id or ""))
        if verdict == UNKNOWN:
            return {"error": INTERRUPTED, "note": _ADVICE}
        await self.credentials.refresh()
        self.progress.begin(tool.name, tool_context)
        report_progress_of(tool)
        if runs_a_child(tool):
            return await self._run_child(cast(AgentTool, tool), tool_args, tool_context)
        return None

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Mask the user's credentials in what the other plugins leave of the request."""
        del callback_context
        self.credentials.secrets.mask_request(llm_request)
        return None

    async def _run_child(
        self, tool: AgentTool, args: dict[str, Any], context: ToolContext
    ) -> dict[str, Any]:
        """Run the agent in its child session, unless its caller's callbacks answer the call."""
        answer = await _run_callbacks(tool, args, context)
        return answer if answer is not None else await self._children.run(tool, args, context)

    def refuse_long_keys(self, context: ToolContext) -> dict[str, Any] | None:
        """Undo state changes under keys that cannot be stored; the error to answer with, if any."""
        delta, refused = context.actions.state_delta, None
        for name in list(delta):
            try:
                self._claim.turn.session.check_state(split_state({name: delta[name]}))
            except InvalidIdError as error:
                del delta[name]
                context.session.state.pop(name, None)
                refused = {"error": str(error)}
        return refused

    async def finish(self, run: ToolRun, result: Any, context: ToolContext) -> None:
        """Record a call's result, unless it came from the ledger."""
        if (run.invocation_id, run.call_key) in self.started:
            actions = dumped_actions(storable_actions(context.actions))
            await self._ledger.finish(self._claim, run, storable_json(result), actions)


class LedgerKeeper(BasePlugin):
    """Records tool results and makes call ids unique, before any other plugin runs.

    It also lets the deltas of answers bypass ADK, where `direct_deltas` are given and no code
    would miss them.
    """

    def __init__(
        self, ledger: LedgerPlugin, holding: Holding, direct_deltas: DirectDeltas | None
    ) -> None:
        super().__init__("lango_ledger_keeper")
        self._ledger = ledger
        self._holding = holding
        self._direct_deltas = direct_deltas

    async def after_tool_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: dict[str, Any],
        tool_context: ToolContext,
        result: Any,
    ) -> dict[str, Any] | None:
        """Record the result, or an error if the tool used a state key that is too long.

        Otherwise the response's event could not be stored, and the call would have no answer. The
        user's credentials are masked, and requests for credentials are stored before the result.
        """
        self._ledger.progress.finish(tool_context)
        credentials = self._ledger.credentials
        await credentials.flush()
        credentials.secrets.drop(tool_context.actions)
        changed = self._ledger.refuse_long_keys(tool_context)
        if changed is None and (masked := credentials.secrets.masked(result)) is not result:
            changed = as_response(masked)
        result = result if changed is None else changed
        await self._ledger.finish(tool_run(tool, tool_args, tool_context), result, tool_context)
        return changed

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Add pending results; raise Fenced if another worker has claimed the turn."""
        show_pending(llm_request.contents, callback_context.session.events)
        failpoint("model.start")
        await self._holding.check()
        if self._direct_deltas is not None and is_direct(callback_context.get_invocation_context()):
            note_caller(callback_context, llm_request).direct_deltas = self._direct_deltas
        failpoint("model.ask")
        return None

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Pass a failpoint; remove repeated call ids from a whole response."""
        del callback_context
        failpoint("model.delta" if llm_response.partial else "model.end")
        if not llm_response.partial:
            without_doubles(llm_response)
        return None

    async def on_event_callback(
        self, *, invocation_context: InvocationContext, event: Event
    ) -> Event | None:
        """Make the event's call ids unique before it is stored, for any model.

        ADK continues with the event that it passes here, so it must be changed in place. The
        responses with which ADK closes the calls of an aborted run are dropped: they are not the
        tools' results, and they answer questions that still wait. `close_history` replaces them.
        """
        await self._ledger.credentials.flush()
        if event.error_code == ABORTED:
            event.content = None
        if not event.partial:
            self._ledger.call_ids.settle(invocation_context.session, event)
        return None


def tool_run(tool: BaseTool, args: dict[str, Any], context: ToolContext) -> ToolRun:
    """A call as the ledger names it. A confirmed run is not the run that asked.

    Its arguments are those of the stored call: callbacks before the ledger's may change the tool's
    arguments, and not alike in every attempt.
    """
    return ToolRun(
        invocation_id=context.invocation_id,
        call_key=call_key(context),
        tool=tool.name,
        args=_stored_arguments(context.session, context.function_call_id or "", args),
        idempotent=is_idempotent(tool),
    )


def _stored_arguments(session: Session, call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    for event in reversed(session.events):
        for call in event.get_function_calls():
            if call.id == call_id:
                return call.args or {}
    return arguments


def is_idempotent(tool: BaseTool) -> bool:
    """Whether a tool is safe to repeat.

    lango's tools declare it; others set `custom_metadata={"idempotent": True}` or, for a plain
    function, an attribute `idempotent`.
    """
    if isinstance(tool, ToolAdapter):
        return tool.tool.idempotent
    if runs_a_child(tool):
        return True  # it resumes in its child session
    if type(tool).__module__.startswith(_OF_ADK) and tool.name in _CHANGE_ONLY_THE_TURN:
        return True
    if (tool.custom_metadata or {}).get(_MARK):
        return True
    return bool(getattr(getattr(tool, "func", None), _MARK, False))


async def _takes_effect(tool: BaseTool, args: dict[str, Any], context: ToolContext) -> bool:
    """Whether the call runs now: a person has confirmed it, or does not have to."""
    if not context.function_call_id:
        return False
    if context.tool_confirmation is not None:
        return context.tool_confirmation.confirmed
    return not await tool.check_require_confirmation(args, context)


def _recorded_result(before: Finished, tool: BaseTool, context: ToolContext) -> dict[str, Any]:
    """The recorded result of a call; its changes are applied to the context again."""
    actions = EventActions.model_validate(before.actions)
    context.state.update(actions.state_delta)
    for name in actions.model_fields_set - {"state_delta"}:
        setattr(context.actions, name, getattr(actions, name))
    if before.result is None and tool.is_long_running:
        return {}  # it still runs elsewhere: ADK writes no response for it
    return as_response(before.result)


def as_response(result: Any) -> dict[str, Any]:
    """A tool's result in the form of ADK's responses."""
    return cast("dict[str, Any]", result) if isinstance(result, dict) else {"result": result}


async def _run_callbacks(
    tool: AgentTool, args: dict[str, Any], context: ToolContext
) -> dict[str, Any] | None:
    agent = context.get_invocation_context().agent
    callbacks = agent.canonical_before_tool_callbacks if isinstance(agent, LlmAgent) else []
    for callback in callbacks:
        answer: Any = callback(tool, args, context)
        answer = await answer if inspect.isawaitable(answer) else answer
        if answer is not None:
            return answer
    return None
