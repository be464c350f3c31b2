"""Functions in a Workflow, entered in the ledger as tools are.

No plugin hears of them, so this too is put right from inside ADK: outside a claimed turn nothing
changes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from google.adk.agents.context import Context
from google.adk.events.event import Event
from google.adk.workflow import FunctionNode

from lango.adk.durable.ledger import Saving, saving
from lango.errors import NotResumableError
from lango.store.ledger import UNKNOWN, Finished, ToolLedger, ToolRun
from lango.store.turn_rows import Claim


@dataclass(frozen=True, slots=True)
class NodeLedger:
    """The ledger of the turn that is running."""

    ledger: ToolLedger
    claim: Claim


node_ledger: ContextVar[NodeLedger | None] = ContextVar("lango_node_ledger", default=None)
_original: Final = FunctionNode._run_impl  # pyright: ignore[reportPrivateUsage]


async def _run_impl(
    self: FunctionNode, *, ctx: Context, node_input: Any
) -> AsyncGenerator[Any, None]:
    kept = node_ledger.get()
    if kept is None:
        async with aclosing(_original(self, ctx=ctx, node_input=node_input)) as items:
            async for item in items:
                yield item
        return
    run = _node_run(self, ctx)
    verdict = await kept.ledger.start(kept.claim, run)
    if verdict == UNKNOWN:
        raise NotResumableError(
            f"The worker died while the node {self.name} ran, and it may not run twice. If it may, "
            "set `idempotent = True` on its function."
        )
    if isinstance(verdict, Finished) and verdict.result is not None:
        for told in verdict.result:
            yield Event.model_validate(told)
        return
    saving.set(Saving(f"{run.invocation_id}/{run.call_key}", run.idempotent))
    made = [item async for item in _original(self, ctx=ctx, node_input=node_input)]
    # A node that asks a person is not over: it asks again.
    over = all(isinstance(item, Event) for item in made)
    told = [_dumped(item) for item in made] if over else None
    await kept.ledger.finish(kept.claim, run, told)
    for item in made:
        yield item


def _node_run(node: FunctionNode, ctx: Context) -> ToolRun:
    function: Any = node._func  # pyright: ignore[reportPrivateUsage]
    answered = "#answered" if ctx.resume_inputs else ""
    return ToolRun(
        invocation_id=ctx.invocation_id,
        call_key=f"node:{ctx.node_path}{answered}",
        tool=node.name,
        args={},
        idempotent=bool(getattr(function, "idempotent", False)),
    )


def _dumped(event: Event) -> Any:
    return event.model_dump(mode="json", exclude_none=True, exclude={"id", "timestamp"})


def put_right() -> None:
    """Replace ADK's method; once is enough, and again does no harm."""
    FunctionNode._run_impl = _run_impl  # pyright: ignore
