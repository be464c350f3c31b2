"""Records functions of a Workflow in the ledger, as tools are.

ADK calls no plugin for them, so this patches ADK. Outside a claimed turn nothing changes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from google.adk.agents.context import Context
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.workflow import FunctionNode, NodeTimeoutError

from lango.adk.compat.workflow import (
    DynamicNodeFailError,
    check_output,
    clear_output,
    function_of,
    pending_output,
    replace_run_function,
    run_function,
)
from lango.adk.credentials.masking import Secrets
from lango.adk.durable.ledger import RunningCall, saving
from lango.adk.durable.nodes.failures import failure_of, is_failure, is_of_child, replayed_error
from lango.adk.sessions.encode import dumped_actions
from lango.adk.sessions.normalise import storable_actions, storable_event
from lango.adk.turn_events import LATER_TRY
from lango.core.turns.events import LEAKED_CANCELLATION
from lango.errors import NotResumableError, TurnError
from lango.store.turns.ledger import NODE, UNKNOWN, Finished, ToolLedger, ToolRun, bounded_key
from lango.store.turns.rows import Claim


@dataclass(frozen=True, slots=True)
class NodeLedger:
    """The ledger of the running turn."""

    ledger: ToolLedger
    claim: Claim
    secrets: Secrets
    failures: Counter[str] = field(default_factory=Counter[str])
    """Failed tries of each node run, by the key of its first try.

    ADK's own count restarts when the turn resumes, and when a Workflow around the node is retried.
    """
    reported: Counter[str] = field(default_factory=Counter[str])
    """Those for which ADK writes an event: not failures of a node that the function ran."""
    cancelled: dict[str, ToolRun] = field(default_factory=dict[str, ToolRun])
    """The tries that were cancelled in this process, by the same key."""

    async def next_try(self, first: ToolRun, limit: float | None) -> ToolRun:
        """The current try of a node.

        ADK runs a cancelled node again only if it counts that try as failed. If the ledger has the
        try's result, the try is not counted and returns that result.
        """
        key = first.call_key
        cut = self.cancelled.pop(key, None)
        if cut is not None:
            if isinstance(await self.ledger.start(self.claim, cut), Finished):
                return cut
            late = NodeTimeoutError(node_name=first.tool, timeout=limit or 0.0)
            await self.ledger.finish(self.claim, cut, failure_of(late))
            self.note_failure(key, of_child=False)
        failed = self.failures[key]
        return replace(first, call_key=bounded_key(f"{key}#try{failed + 1}")) if failed else first

    def note_failure(self, key: str, *, of_child: bool) -> None:
        """Count a failed try."""
        self.failures[key] += 1
        self.reported[key] += not of_child


node_ledger: ContextVar[NodeLedger | None] = ContextVar("lango_node_ledger", default=None)


async def run_recorded(
    node: FunctionNode, /, *, ctx: Context, node_input: Any
) -> AsyncGenerator[Any, None]:
    """Run the function of a node, and record it if a claimed turn runs it.

    A streaming tool runs as a node, too. The ledger has its call, so its events need not wait.
    """
    recorder = node_ledger.get()
    if recorder is None or _is_tool(ctx):
        async with aclosing(run_function(node, ctx=ctx, node_input=node_input)) as items:
            async for item in items:
                yield item
        return
    first = _node_run(node, ctx)
    run = await recorder.next_try(first, node.timeout)
    try:
        results = await _run_try(node, recorder, first.call_key, run, ctx, node_input)
    except asyncio.CancelledError:
        recorder.cancelled[first.call_key] = run
        raise
    for item in results:
        yield item


def _is_tool(ctx: Context) -> bool:
    """Whether a node is the function of the running tool: ADK gives it the id of the call."""
    running = saving.get()
    return running is not None and running.tool_call != "" and running.tool_call == ctx.run_id


async def _run_try(
    node: FunctionNode, recorder: NodeLedger, key: str, run: ToolRun, ctx: Context, node_input: Any
) -> list[Any]:
    """The result of one try, now or from an earlier attempt of the turn."""
    verdict = await recorder.ledger.start(recorder.claim, run)
    if verdict == UNKNOWN:
        raise NotResumableError(
            f"The worker died while the node {node.name} ran, and it may not run twice. If it may, "
            "set `idempotent = True` on its function."
        )
    if isinstance(verdict, Finished) and verdict.result is not None:
        return list(_recorded_events(verdict, recorder, key, ctx))
    saving.set(RunningCall(f"{run.invocation_id}/{run.call_key}", run.idempotent))
    try:
        produced = await _produced(node, ctx, node_input)
    except Exception as error:
        recorder.secrets.drop(ctx.actions)
        actions = dumped_actions(storable_actions(ctx.actions))
        failure = recorder.secrets.masked(failure_of(error))
        await recorder.ledger.finish(recorder.claim, run, failure, actions)
        recorder.note_failure(key, of_child=isinstance(error, DynamicNodeFailError))
        raise
    # A node that asks a person has not ended: it asks again.
    is_complete = all(isinstance(item, Event) for item in produced)
    if is_complete:
        produced = _with_pending(produced, ctx, recorder.failures[key] + 1)
        for event in produced:
            recorder.secrets.mask_event(event)
    stored_events = [_dumped(item) for item in produced] if is_complete else None
    await recorder.ledger.finish(recorder.claim, run, stored_events)
    return produced


async def _produced(node: FunctionNode, ctx: Context, node_input: Any) -> list[Any]:
    """A function's items. It fails if its output does not fit its schema, as in ADK.

    It also fails if it raises a CancelledError though its task is not cancelled: ADK would end the
    whole Workflow.
    """
    try:
        produced = [item async for item in run_function(node, ctx=ctx, node_input=node_input)]
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise TurnError(f"The node {node.name} failed. {LEAKED_CANCELLATION}") from None
    for item in produced:
        if isinstance(item, Event) and item.output is not None:
            check_output(node, item.output)
    return produced


def _with_pending(events: list[Any], ctx: Context, tries: int) -> list[Any]:
    """A node's events; the last one includes what ADK would otherwise write in one more event.

    A kill between the two events would leave an ended node without its route.
    """
    output = pending_output(ctx)
    artifacts = ctx.actions.artifact_delta
    routed = any(event.actions.route is not None for event in events)
    route = None if routed else ctx.route
    if not events and (output is not None or route is not None or artifacts or tries > 1):
        events = [Event()]
    if not events:
        return events
    last = events[-1]
    last.actions.artifact_delta.update(artifacts)
    if route is not None:
        last.actions.route = route
    if output is not None and all(event.output is None for event in events):
        last.output = output
        clear_output(ctx)
    if tries > 1:
        last.custom_metadata = {**(last.custom_metadata or {}), LATER_TRY: tries}
    return events


def _recorded_events(
    before: Finished, recorder: NodeLedger, key: str, ctx: Context
) -> Iterator[Event]:
    """The events of a try from an earlier attempt of the turn; a failed try fails again."""
    if is_failure(before.result):
        of_child = is_of_child(before.result)
        recorder.note_failure(key, of_child=of_child)
        is_stored = of_child or _stored_failures(ctx) >= recorder.reported[key]
        if not is_stored:  # ADK puts both into its event of the failure
            actions = EventActions.model_validate(before.actions)
            ctx.state.update(actions.state_delta)
            ctx.actions.artifact_delta.update(actions.artifact_delta)
        raise replayed_error(before.result, ctx.node_path, is_stored=is_stored)
    for stored_event in before.result:
        event = Event.model_validate(stored_event)
        if event.actions.route is not None:
            ctx.route = event.actions.route
        yield event


def _stored_failures(ctx: Context) -> int:
    """How many failed tries of this node run have an event in the session."""
    failures = 0
    for event in ctx.session.events:
        if event.invocation_id != ctx.invocation_id:
            continue
        if event.author == "user" and event.content:
            failures = 0  # a run after an answer counts its own tries
        elif event.node_info.path == ctx.node_path and event.error_code:
            failures += 1
    return failures


def _node_run(node: FunctionNode, ctx: Context) -> ToolRun:
    answered = "#answered" if ctx.resume_inputs else ""
    return ToolRun(
        invocation_id=ctx.invocation_id,
        call_key=bounded_key(f"{NODE}{ctx.node_path}{answered}"),
        tool=node.name,
        args={},
        idempotent=bool(getattr(function_of(node), "idempotent", False)),
    )


def _dumped(event: Event) -> Any:
    storable = storable_event(event)
    return storable.model_dump(mode="json", exclude_none=True, exclude={"id", "timestamp"})


def install_patch() -> None:
    """Patch ADK's method (idempotent)."""
    replace_run_function(run_recorded)
