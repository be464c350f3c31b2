"""What turns used, over agents that tools run and over attempts that were cut off."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from lango.adk.durable.run import DurableAgent
from lango.adk.models.adapter import ModelAdapter
from lango.adk.plugins import model_calls, plugins
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.context.model_calls import ModelCall
from lango.core.messages.messages import ToolCall
from lango.core.messages.streams import Usage
from lango.core.turns.events import ENDS, End, Failed
from lango.errors import Fenced, TurnLimitError
from lango.store.db.database import Database
from lango.store.model_calls import ModelCallStore
from lango.store.turns import model_calls as turn_calls
from lango.store.turns.holding import PROOF_LASTS
from lango.store.turns.rows import Claim, Turn
from lango.testing import Reply, ScriptedProvider
from tests.adk.durable.dying import Died, death
from tests.adk.plugins.plugin_talk import called, other
from tests.store.rows import key
from tests.store.turns.turn_stores import APP, TurnStores, opened

USAGE = Usage(input=10, output=5)


def look(k: str = "") -> dict[str, str]:
    """Look at something."""
    return {"seen": k}


def calls(tool: str, call: str, arguments: str = "{}") -> Reply:
    return Reply("", (ToolCall(call, tool, arguments),), usage=USAGE)


def says(text: str) -> Reply:
    return Reply(text, usage=USAGE)


def agent(replies: Sequence[Reply | str], *tools: Any, name: str = "root") -> LlmAgent:
    return LlmAgent(
        name=name, model=ModelAdapter(ScriptedProvider(replies), "demo"), tools=[*tools]
    )


class TurnTrial:
    """A turn, and the workers that run it in turn."""

    def __init__(self, stores: TurnStores, tenant: str) -> None:
        self.stores, self.tenant = stores, tenant
        self.claim: Claim | None = None

    async def claimed(self) -> Claim:
        """The turn for the next worker: the one before is dead."""
        if self.claim is not None:
            await self.stores.workers.remove(self.claim.worker)
        pk = (await self.stores.sessions.locate(key(self.tenant))).pk
        self.claim = await self.stores.claim(pk, await self.stores.worker())
        return self.claim

    def durable(self, root: LlmAgent, **limits: Any) -> DurableAgent:
        store = self.stores.sessions
        sessions = SessionServiceAdapter(store, tenant=self.tenant)
        runner = AgentRunner(root, sessions, plugins=plugins(store, **limits), name=APP)
        return DurableAgent(runner, store)

    async def attempt(self, root: LlmAgent, **limits: Any) -> tuple[End, Turn]:
        """Run the turn to its end and close it."""
        claim, ends = await self.claimed(), list[End]()
        async for event in self.durable(root, **limits).run(claim):
            ends += [event] if isinstance(event, ENDS) else []
        closed = await self.stores.queue.close(claim, ends[-1])
        return ends[-1], closed.turn

    async def killed(self, point: str, times: int, root: LlmAgent, **limits: Any) -> None:
        """Run the turn until its process dies at a failpoint."""
        claim = await self.claimed()
        with death(point, times), pytest.raises(BaseException) as raised:  # noqa: PT011
            async for _ in self.durable(root, **limits).run(claim):
                pass
        found = raised.value
        assert isinstance(found, Died | BaseExceptionGroup)

    async def rows(self) -> list[tuple[str, str, Usage | None]]:
        found = await ModelCallStore(self.stores.ledger.database).of_session(key(self.tenant))
        return [
            (row.call.agent, row.call.attempt.outcome, row.call.attempt.usage)
            for row in reversed(found)
        ]


@asynccontextmanager
async def turn_trial(url: str, tenant: str) -> AsyncGenerator[TurnTrial]:
    async with opened(url) as stores:
        await stores.session(key(tenant))
        await stores.submit(key(tenant))
        yield TurnTrial(stores, tenant)


@pytest.mark.parametrize("include_plugins", [True, False])
async def test_calls_of_agents_that_tools_run_are_the_turns(
    include_plugins: bool, store_url: str, tenant: str
) -> None:
    helper = agent([calls("look", "h1"), says("helped")], look, name="helper")
    tool = AgentTool(helper, include_plugins=include_plugins)
    root = agent([calls("helper", "c1", '{"request": "do"}'), says("done")], tool)
    async with turn_trial(store_url, tenant) as trial:
        _, turn = await trial.attempt(root)
        assert [agent for agent, *_ in await trial.rows()] == ["root", "helper", "helper", "root"]
    assert turn.usage is not None
    assert (turn.usage["input"], turn.usage["output"]) == (40, 20)


async def test_a_turn_that_lost_its_worker_has_what_all_attempts_used(
    store_url: str, tenant: str
) -> None:
    """The first answer was paid for and lost; the second call never came to an end."""
    async with turn_trial(store_url, tenant) as trial:
        await trial.killed("append.before", 2, agent([says("lost")]))
        await trial.killed("call.enter.after", 1, agent([says("never")]))
        assert [row[1:] for row in await trial.rows()] == [
            ("completed", USAGE),
            ("started", None),
        ]
        _, turn = await trial.attempt(agent([says("done")]))
        assert [row[1:] for row in await trial.rows()] == [
            ("completed", USAGE),
            ("cut_off", None),
            ("completed", USAGE),
        ]
    assert turn.usage is not None
    assert (turn.usage["input"], turn.usage["output"]) == (20, 10)


async def test_no_model_is_asked_by_a_worker_that_was_frozen_while_its_row_was_written(
    store_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedProvider([says("of a zombie")])
    root = LlmAgent(name="root", model=ModelAdapter(model, "demo"))

    async with turn_trial(store_url, tenant) as trial:

        async def frozen(database: Database, claim: Claim, record: ModelCall) -> None:
            await turn_calls.enter_call(database, claim, record)
            await asyncio.sleep(PROOF_LASTS + 0.1)
            await trial.claimed()

        monkeypatch.setattr(model_calls, "enter_call", frozen)
        claim = await trial.claimed()
        with pytest.raises(Fenced):
            async for _ in trial.durable(root).run(claim):
                pass
    assert not model.requests


LIMITS = [
    ({"model_calls": 3}, "model_calls"),
    ({"tokens": 31}, "tokens"),  # of two answers, and a prompt that was sent
    ({"tool_calls": 0}, "tool_calls"),
]


@pytest.mark.parametrize(("limits", "limit"), LIMITS, ids=[limit for _, limit in LIMITS])
async def test_limits_count_over_all_attempts(
    limits: dict[str, int], limit: str, store_url: str, tenant: str
) -> None:
    """Two calls in the first attempt, one that is cut off in the second: the third makes none."""
    async with turn_trial(store_url, tenant) as trial:
        script = [calls("look", "c1"), says("lost")]
        await trial.killed("append.before", 4, agent(script, look))
        await trial.killed("call.enter.after", 1, agent([says("never")], look))
        end, _ = await trial.attempt(agent([says("too many")], look), **limits)
        rows = await trial.rows()
    assert isinstance(end, Failed)
    assert isinstance(end.error, TurnLimitError)
    assert end.error.limit == limit
    assert [row[1] for row in rows] == ["completed", "completed", "cut_off"]


async def test_a_tool_call_that_comes_again_counts_once(store_url: str, tenant: str) -> None:
    async with turn_trial(store_url, tenant) as trial:
        await trial.killed("ledger.finish.after", 1, agent([calls("look", "c1")], look))
        script = [calls("look", "c2"), says("done")]
        end, _ = await trial.attempt(agent(script, look), tool_calls=2)
    assert not isinstance(end, Failed)


async def test_a_model_that_is_not_ours_has_its_row_before_it_is_asked(
    store_url: str, tenant: str
) -> None:
    def root(*replies: Any) -> LlmAgent:
        return LlmAgent(name="root", model=other(*replies), tools=[look])

    async with turn_trial(store_url, tenant) as trial:
        await trial.killed("call.enter.after", 2, root(called("look", "c1"), "never"))
        assert [row[1] for row in await trial.rows()] == ["completed", "started"]
        _, turn = await trial.attempt(root("done"))
        rows = await trial.rows()
    assert [row[1] for row in rows] == ["completed", "cut_off", "completed"]
    assert turn.usage is not None
    assert turn.usage["input"] == sum(usage.input for *_, usage in rows if usage)


async def test_a_model_that_a_callback_answers_for_has_no_row(store_url: str, tenant: str) -> None:
    """Whether it is asked shows only after the plugins: its row is written when it has answered."""

    def instead(callback_context: CallbackContext, llm_request: LlmRequest) -> LlmResponse | None:
        del callback_context, llm_request
        return answers.pop()

    call = LlmResponse(content=types.ModelContent(called("look", "c1")))
    answers: list[LlmResponse | None] = [None, call]
    root = LlmAgent(name="root", model=other("done"), tools=[look], before_model_callback=instead)
    async with turn_trial(store_url, tenant) as trial:
        await trial.attempt(root)
        assert [row[1] for row in await trial.rows()] == ["completed"]
