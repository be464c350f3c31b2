"""An app whose long conversations are summarised, for workers in this process and in others."""

from collections.abc import Mapping
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer

from faults.turns.processes import arm, keep_log, run_until_stopped
from faults.turns.workspace import TurnProcess, Workspace, turn_process
from lango.adk.apps.compaction import Compaction, compaction
from lango.adk.durable.run import DurableAgent
from lango.adk.models.adapter import ModelAdapter
from lango.adk.plugins import plugins
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.providers.base import ModelRequest
from lango.store.model_calls import ModelCallStore
from lango.testing import Reply, ScriptedProvider
from lango.turns import event_loop
from lango.turns.worker import TurnWorker
from tests.adk.durable.talks import FACT, PAID, USAGE, text_of

BUDGET = 80
"""Tokens of a request: about three turns."""
EVERY = 5
"""Turns of one summary."""


def echo(request: ModelRequest) -> Reply:
    return Reply(f"Heard: {request.messages[-1].content}", usage=USAGE)


def _summed_up(request: ModelRequest, *, facts: tuple[str, ...]) -> Reply:
    """Keep the facts that the events, or the summary before them, have."""
    told = request.messages[-1].content.partition("concise and capture")[2]
    kept = [fact for fact in facts if fact in told]
    return Reply(f"So far: {', '.join(kept) or 'small talk'}.", usage=PAID)


def _compaction(options: Mapping[str, int], facts: tuple[str, ...] = (FACT,)) -> Compaction:
    short = ScriptedProvider(rule=partial(_summed_up, facts=facts))
    return compaction(LlmEventSummarizer(llm=ModelAdapter(short, "short")), **options)


def _agent(model: ScriptedProvider | None, budget: int | None) -> LlmAgent:
    provider = model or ScriptedProvider(rule=echo)
    return LlmAgent(name="root", model=ModelAdapter(provider, "demo", token_budget=budget))


def app_of(name: str, options: Mapping[str, int]) -> App:
    """The app for ADK's own server."""
    return App(
        name=name, root_agent=_agent(None, None), events_compaction_config=_compaction(options)
    )


def summarising_worker(
    here: TurnProcess, tenant: str, model: ScriptedProvider | None = None, *, fact: str = ""
) -> TurnWorker:
    """A worker of the workspace's app; its summaries keep one more fact."""
    runner = AgentRunner(
        _agent(model, BUDGET),
        SessionServiceAdapter(here.store, tenant=tenant, token_budget=BUDGET),
        plugins=plugins(here.store, token_budget=BUDGET),
        name=here.workspace.app,
        compaction=_compaction({"turns": EVERY}, (FACT, *([fact] if fact else []))),
    )
    return TurnWorker(
        here.store, here.engine, {here.workspace.app: DurableAgent(runner, here.store)}
    )


def summarise(workspace: Workspace, options: dict[str, Any], ready: Event) -> None:
    """The job of a worker process."""
    keep_log(workspace)
    arm(workspace, options)
    event_loop.run(_summarise(workspace, options["tenant"], ready))


async def _summarise(workspace: Workspace, tenant: str, ready: Event) -> None:
    async with turn_process(workspace, dead_after=1.5) as here:
        await run_until_stopped(summarising_worker(here, tenant), ready, 5.0)


async def check_summaries(here: TurnProcess, tenant: str, count: int) -> None:
    """The app's session has this many summaries: each stored once, and charged once."""
    found = await here.store.page(tenant, here.workspace.app)
    (key,) = [session.key for session in found.items if session.message_count]
    rows = await ModelCallStore(here.store.database).of_session(key, limit=1_000)
    calls = [row.call.attempt for row in rows if row.call.kind == "summary"]
    assert [(call.outcome, call.usage) for call in calls] == [("completed", PAID)] * count
    service = SessionServiceAdapter(here.store, tenant=tenant, token_budget=None)
    session = await service.get_session(
        app_name=key.app_name, user_id=key.user_id, session_id=key.session_id
    )
    assert session
    stored = [event.actions.compaction for event in session.events if event.actions.compaction]
    assert len(stored) == count
    assert all(FACT in text_of(summary) for summary in stored)
