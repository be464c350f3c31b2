"""Model calls in the database, as a real Runner makes them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from google.adk.agents import BaseAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool

from lango.adk.models.adapter import ModelAdapter
from lango.adk.plugins import model_calls as plugin_module
from lango.adk.plugins.budget import BudgetPlugin
from lango.adk.plugins.caller import CallerPlugin
from lango.adk.plugins.model_calls import ModelCallsPlugin
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.context.model_calls import ModelCall
from lango.core.messages.streams import Usage
from lango.errors import ModelUnavailableError
from lango.providers.policy.retry import Policy, PolicyProvider
from lango.store.model_calls import ModelCallStore, StoredModelCall
from lango.store.schema.tables import model_calls
from lango.store.sessions.entries import Appended, Entry, SessionKey, SessionRef
from lango.store.sessions.store import SqlSessionStore
from lango.testing import Fault, Reply, ScriptedProvider
from tests.adk.plugins.plugin_talk import (
    APP,
    OLD_WAYS,
    SESSION,
    USER,
    OtherModel,
    PluginConversation,
    agent,
    called,
    calling,
    in_parallel,
    other,
    ours,
    said,
)
from tests.store.rows import beside, execute

pytestmark = OLD_WAYS


async def look(number: int = 0) -> dict[str, Any]:
    """Look at a number."""
    return {"seen": number}


@dataclass
class RecordedCalls:
    """A database with a session service and the plugin on it."""

    store: SqlSessionStore
    tenant: str

    def __post_init__(self) -> None:
        self.plugin = ModelCallsPlugin(self.store)
        self.service = SessionServiceAdapter(self.store, tenant=self.tenant)
        self.calls = ModelCallStore(self.store.database)

    def talk(self, model: BaseLlm, *plugins: BasePlugin, **options: Any) -> PluginConversation:
        return PluginConversation(
            agent(model, look, **options), [*plugins, self.plugin], self.service
        )

    async def stored(self) -> list[StoredModelCall]:
        """What is stored of the session, in its order."""
        key = SessionKey(self.tenant, APP, USER, SESSION)
        return (await self.calls.of_session(key))[::-1]

    async def records(self) -> list[ModelCall]:
        return [one.call for one in await self.stored()]


@pytest_asyncio.fixture
async def recorded(store_url: str, tenant: str) -> AsyncIterator[RecordedCalls]:
    async with SqlSessionStore(store_url) as store:
        recorded = RecordedCalls(store, tenant)
        yield recorded
        await recorded.plugin.close()


def both(*replies: str) -> list[BaseLlm]:
    """A model of ours and another one: a call of `look` for "look", else the words themselves."""
    theirs = [called("look", f"c{n}") if one == "look" else one for n, one in enumerate(replies)]
    our = [calling("look", f"c{n}") if one == "look" else one for n, one in enumerate(replies)]
    return [other(*theirs), ours(*our)]


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
@pytest.mark.parametrize("kind", [0, 1], ids=["other", "ours"])
async def test_one_row_for_each_call(recorded: RecordedCalls, kind: int, streaming: bool) -> None:
    talk = recorded.talk(both("look", "well then")[kind], instruction="Be brief.")
    events = await talk.say("go", streaming=streaming)
    rows = await recorded.stored()
    first, second = records = [row.call for row in rows]
    for record in records:
        assert record.session == (APP, USER, SESSION)
        assert record.turn == events[0].invocation_id
        assert (record.agent, record.number) == ("root", 1)
        attempt = record.attempt
        assert (attempt.outcome, attempt.error) == ("completed", "")
        assert attempt.first_byte is not None
        assert attempt.started <= attempt.first_byte <= attempt.ended
        assert record.estimated > 0
        assert record.price is None
    assert first.call != second.call
    assert [(one.sent, one.left_out, one.why) for one in records] == [(1, 0, ""), (3, 0, "")]
    assert [(one.first_seq, one.last_seq) for one in records] == [(1, 1), (1, 3)]
    named = {(one.attempt.provider, one.attempt.model) for one in records}
    assert named == {[("othermodel", "other-1"), ("scripted", "demo")][kind]}
    if kind == 0:
        assert first.attempt.usage == Usage(input=100, output=15, reasoning=5)
    for row in rows:
        system = await recorded.calls.prompt_part(recorded.tenant, row.system_hash or "")
        assert system is not None
        assert "Be brief." in system
        tools = await recorded.calls.prompt_part(recorded.tenant, row.tools_hash or "")
        assert tools is not None
        assert "Look at a number." in tools


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
@pytest.mark.parametrize("kind", [0, 1], ids=["other", "ours"])
async def test_an_answer_is_stored_after_its_record(
    recorded: RecordedCalls, kind: int, streaming: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies with an answer in its session has not lost what the answer cost."""
    append, add = SqlSessionStore.append, ModelCallStore.add
    known: list[tuple[str, int]] = []

    async def noted(
        store: SqlSessionStore, ref: SessionRef, entry: Entry, epoch: int | None = None
    ) -> Appended:
        known.append((entry.role, len(await recorded.stored())))
        return await append(store, ref, entry, epoch)

    async def slow(calls: ModelCallStore, tenant: str, records: Sequence[ModelCall]) -> None:
        await asyncio.sleep(0.05)
        await add(calls, tenant, records)

    monkeypatch.setattr(SqlSessionStore, "append", noted)
    monkeypatch.setattr(ModelCallStore, "add", slow)
    await recorded.talk(both("look", "well then")[kind]).say("go", streaming=streaming)
    assert [one for one in known if one[0] != "control"] == [
        ("user", 0),
        ("assistant", 1),
        ("tool", 1),
        ("assistant", 2),
    ]


async def test_every_attempt_has_its_row(recorded: RecordedCalls) -> None:
    gone = Reply("x", fault=Fault(0, ModelUnavailableError("gone", request_id="req-1")))
    provider = PolicyProvider(ScriptedProvider([gone, gone, "here"]), Policy(first_wait=0.001))
    await recorded.talk(ModelAdapter(provider, "demo")).say("go")
    records = await recorded.records()
    assert [one.number for one in records] == [1, 2, 3]
    assert len({one.call for one in records}) == 1
    assert [one.attempt.outcome for one in records] == ["failed", "failed", "completed"]
    assert [one.attempt.error for one in records] == ["ModelUnavailableError"] * 2 + [""]
    assert [one.attempt.request_id for one in records] == ["req-1", "req-1", ""]
    assert records[0].attempt.first_byte is None


@pytest.mark.parametrize("kind", [0, 1], ids=["other", "ours"])
async def test_a_call_that_fails_has_its_row(recorded: RecordedCalls, kind: int) -> None:
    gone = ModelUnavailableError("gone")
    model = [other(gone), ours(Reply("one two", fault=Fault(1, gone)))][kind]
    with pytest.raises(ModelUnavailableError):
        await recorded.talk(model).say("go")
    [record] = await recorded.records()
    assert (record.attempt.outcome, record.attempt.error) == ("failed", "ModelUnavailableError")


async def test_records_come_without_any_other_plugin_and_once_with_them(
    recorded: RecordedCalls,
) -> None:
    """Whichever way round: the plugins share what they know of a call."""
    for plugins in ([CallerPlugin(), recorded.plugin], [recorded.plugin, CallerPlugin()]):
        talk = PluginConversation(agent(ours("ok"), look), plugins, recorded.service)
        await talk.say("go")
    assert len(await recorded.records()) == 2


async def test_parallel_agents_are_not_mixed_up(recorded: RecordedCalls) -> None:
    agents: list[BaseAgent] = []
    for number, name in enumerate(("one", "two", "three"), start=1):
        replies = [
            Reply(f"{name} {name}", calling("look", f"{name}-{n}").calls, usage=Usage(number, n))
            for n in range(3)
        ]
        provider = ScriptedProvider([*replies, Reply("ok", usage=Usage(number, 9))], delay=0.001)
        agents.append(agent(ModelAdapter(provider, name), look, name=name))
    await PluginConversation(in_parallel(*agents), [recorded.plugin], recorded.service).say(
        "go", streaming=True
    )
    records = await recorded.records()
    assert len(records) == 12
    for number, name in enumerate(("one", "two", "three"), start=1):
        own = [one for one in records if one.agent == name]
        assert {one.attempt.model for one in own} == {name}
        assert [one.attempt.usage for one in own] == [Usage(number, n) for n in (0, 1, 2, 9)]
        assert [one.sent for one in own] == [1, 3, 5, 7]
    assert [one.agent for one in records] != sorted(one.agent for one in records)


async def test_parallel_agents_with_models_of_others_are_not_mixed_up(
    recorded: RecordedCalls,
) -> None:
    meet = asyncio.Barrier(3)
    names = ("one", "two", "three")
    agents = [
        agent(
            OtherModel(model=name, replies=[called("look", name), "ok"], meet=meet), look, name=name
        )
        for name in names
    ]
    await PluginConversation(in_parallel(*agents), [recorded.plugin], recorded.service).say(
        "go", streaming=True
    )
    found = sorted((one.agent, one.attempt.model, one.sent) for one in await recorded.records())
    assert found == sorted((name, name, sent) for name in names for sent in (1, 3))


@pytest.mark.parametrize("kind", [0, 1], ids=["other", "ours"])
async def test_what_was_left_out_and_where_the_rest_begins(
    recorded: RecordedCalls, kind: int
) -> None:
    words = "many words " * 30
    models = [other(*["fine"] * 5), ours(*["fine"] * 5, token_budget=400)]
    talk = recorded.talk(models[kind], BudgetPlugin(400))
    for _ in range(5):
        await talk.say(words)
    last = (await recorded.records())[-1]
    assert last.left_out > 0
    assert last.sent + last.left_out == 9
    assert last.why == "budget"
    assert last.budget <= 400
    assert (last.first_seq, last.last_seq) == (1 + last.left_out, 9)


async def test_agents_that_tools_run_belong_to_the_turn(recorded: RecordedCalls) -> None:
    inner = agent(other("inside"), name="inner")
    outer = agent(other(called("inner", "i", request="go"), "ok"), AgentTool(inner))
    events = await PluginConversation(outer, [recorded.plugin], recorded.service).say("go")
    records = await recorded.records()
    assert [one.agent for one in records] == ["root", "inner", "root"]
    assert {one.turn for one in records} == {events[0].invocation_id}
    assert records[1].first_seq is None  # its messages are not kept


async def test_of_sessions_kept_elsewhere(store_url: str, tenant: str) -> None:
    plugin = ModelCallsPlugin(store_url, tenant=tenant)
    talk = PluginConversation(agent(other("ok", "ok"), look), [plugin])
    await talk.say("go")
    await talk.say("go")
    await plugin.close()
    async with SqlSessionStore(store_url) as store:
        calls = ModelCallStore(store.database)
        found = await calls.of_session(SessionKey(tenant, APP, USER, SESSION))
        assert [row.call.sent for row in found] == [3, 1]
        assert [row.call.first_seq for row in found] == [None, None]
        assert await calls.of_session(SessionKey(tenant, APP, "stranger", SESSION)) == []


async def test_one_database_in_memory_does_for_everything(tenant: str) -> None:
    async with SqlSessionStore("sqlite:///:memory:") as store:
        recorded = RecordedCalls(store, tenant)
        for _ in range(5):
            await recorded.talk(both("look", "look", "ok")[1]).say("go")
        await recorded.plugin.close()
        assert len(await recorded.records()) == 15


# --- a database that does not answer ---------------------------------------------------------


async def test_nothing_waits_for_a_database_that_hangs(
    postgres_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqlSessionStore(postgres_url) as store:
        recorded = RecordedCalls(store, tenant)
        await recorded.service.create_session(app_name=APP, user_id=USER, session_id=SESSION)
        async with beside(postgres_url) as lock:
            await lock.execute(sa.text("lock table model_calls in access exclusive mode"))
            for number in range(4):
                # The first turn's end waits a moment for its records, the others not at all.
                wait = 0.1 if number == 0 else 600.0
                monkeypatch.setattr(plugin_module, "FLUSH_SECONDS", wait)
                talk = recorded.talk(both("look", "two words")[1])
                events = await asyncio.wait_for(talk.say("go", streaming=True), 25)
                assert said(events) == "two words"
                assert [e.partial for e in events if said([e]) or e.partial][:1] == [True]
        await recorded.plugin.close()
        assert len(await recorded.records()) == 8


async def test_a_database_that_fails_costs_records_and_no_turn(
    sqlite_url: str, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with SqlSessionStore(sqlite_url) as store:
        recorded = RecordedCalls(store, tenant)
        await execute(sqlite_url, "drop table model_calls")
        with caplog.at_level(logging.WARNING, "lango"):
            for _ in range(3):
                assert said(await recorded.talk(both("look", "ok")[1]).say("go")) == "ok"
            await recorded.plugin.close()
            warnings = [one for one in caplog.records if "cannot be written" in one.getMessage()]
            assert len(warnings) == 1
            assert warnings[0].exc_info is not None
        async with beside(sqlite_url) as connection:
            await connection.run_sync(model_calls.create)
        await recorded.talk(ours("ok")).say("go")
        await recorded.plugin.close()
        assert len(await recorded.records()) == 1


async def test_it_says_when_writing_works_again(
    sqlite_url: str, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with SqlSessionStore(sqlite_url) as store:
        recorded = RecordedCalls(store, tenant)
        await execute(sqlite_url, "alter table model_calls rename to away")
        with caplog.at_level(logging.WARNING, "lango"):
            talk = recorded.talk(ours("ok", "ok"))
            await talk.say("go")
            await execute(sqlite_url, "alter table away rename to model_calls")
            await talk.say("go")
            await recorded.plugin.close()
        assert "Records of model calls are written again; 1 were lost." in caplog.messages
        assert len(await recorded.records()) == 1
