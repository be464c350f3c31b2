"""A long conversation with summaries, for tests: each turn in a new worker."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.events.event_actions import EventCompaction
from google.adk.models.base_llm import BaseLlm

from lango.adk.apps.compaction import Compaction, compaction
from lango.adk.apps.load import Root
from lango.adk.durable.run import DurableAgent
from lango.adk.models.adapter import ModelAdapter
from lango.adk.plugins import plugins
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.context.model_calls import ModelCall
from lango.core.messages.streams import Usage
from lango.core.turns.events import ENDS, End, TurnEvent
from lango.providers.base import ModelRequest
from lango.store.model_calls import ModelCallStore
from lango.store.turns.rows import Turn
from lango.testing import Reply, ScriptedProvider
from tests.store.rows import key
from tests.store.turns.turn_stores import APP, TurnStores, opened

FACT = "the ferry leaves from pier nine"
USAGE = Usage(input=10, output=5)
PAID = Usage(input=70, output=7)


def answered(request: ModelRequest) -> Reply:
    return Reply(f"answer {len(request.messages)}", usage=USAGE)


def summed_up(request: ModelRequest) -> Reply:
    """Keep the fact, if the events or the summary before them have it."""
    told = request.messages[-1].content.partition("concise and capture")[2]
    return Reply(f"So far: {FACT if FACT in told else 'small talk'}.", usage=PAID)


class DurableConversation:
    """A conversation whose turns run one after the other, each in a new worker."""

    def __init__(self, stores: TurnStores, tenant: str, token_budget: int | None = 0) -> None:
        self.stores, self.tenant, self.token_budget = stores, tenant, token_budget
        self.model = ScriptedProvider(rule=answered)
        self.summarizing = ScriptedProvider(rule=summed_up)
        self.events: list[TurnEvent] = []
        self.summaries_before: list[int] = []
        self.worker = ""

    def agent(self) -> LlmAgent:
        model = ModelAdapter(self.model, "demo", token_budget=self.token_budget)
        return LlmAgent(name="root", model=model)

    def compaction(self, llm: BaseLlm | None = None, **options: Any) -> Compaction:
        llm = llm or ModelAdapter(self.summarizing, "short")
        return compaction(LlmEventSummarizer(llm=llm), **(options or {"turns": 2}))

    def durable(self, config: Compaction | None = None, root: Root | None = None) -> DurableAgent:
        store = self.stores.sessions
        sessions = SessionServiceAdapter(store, tenant=self.tenant, token_budget=self.token_budget)
        runner = AgentRunner(
            root or self.agent(),
            sessions,
            plugins=plugins(store, token_budget=self.token_budget),
            name=APP,
            compaction=config,
        )
        return DurableAgent(runner, store)

    async def turn(self, durable: DurableAgent, text: str) -> Turn:
        """Submit a turn and run it to its end."""
        await self.stores.submit(key(self.tenant), text)
        return await self.attempt(durable)

    async def attempt(self, durable: DurableAgent) -> Turn:
        """Run the open turn to its end; the worker before is dead."""
        if self.worker:
            await self.stores.workers.remove(self.worker)
        worker = await self.stores.worker()
        self.worker = worker.id
        pk = (await self.stores.sessions.locate(key(self.tenant))).pk
        claim, ends = await self.stores.claim(pk, worker), list[End]()
        async for event in durable.run(claim):
            self.events.append(event)
            self.summaries_before.append(len(self.summarizing.requests))
            ends += [event] if isinstance(event, ENDS) else []
        return (await self.stores.queue.close(claim, ends[-1])).turn

    async def stored(self) -> list[EventCompaction]:
        service = SessionServiceAdapter(self.stores.sessions, tenant=self.tenant, token_budget=None)
        where = key(self.tenant)
        session = await service.get_session(
            app_name=where.app_name, user_id=where.user_id, session_id=where.session_id
        )
        found = [event.actions.compaction for event in (session.events if session else [])]
        return [summary for summary in found if summary is not None]

    async def calls(self, kind: str = "summary") -> list[ModelCall]:
        rows = await ModelCallStore(self.stores.sessions.database).of_session(
            key(self.tenant), limit=1_000
        )
        return [row.call for row in reversed(rows) if row.call.kind == kind]

    @property
    def last_request(self) -> list[str]:
        return [message.content for message in self.model.requests[-1].messages[1:]]


@asynccontextmanager
async def talking(
    url: str, tenant: str, token_budget: int | None = 0
) -> AsyncGenerator[DurableConversation]:
    async with opened(url) as stores:
        await stores.session(key(tenant))
        yield DurableConversation(stores, tenant, token_budget)


def text_of(summary: EventCompaction) -> str:
    return "".join(part.text or "" for part in summary.compacted_content.parts or ())
