"""ADK's memory through durable turns: its tools, its contexts, and what turns add by themselves."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.load_memory_tool import load_memory_tool
from google.adk.tools.preload_memory_tool import preload_memory_tool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from lango.adk.apps.services import RegisteredMemoryService
from lango.adk.memory import SqlMemoryService
from lango.adk.sessions.service import SessionServiceAdapter
from lango.agent.agent import Agent
from lango.core.turns.events import ToolFinished, TurnEvent
from lango.errors import ConfigError, SessionNotFoundError
from lango.store.sessions.store import SqlSessionStore
from lango.testing import Reply
from lango.turns.engine.database import LocalEngine
from lango.turns.service import Turns
from lango.turns.worker import TurnWorker
from tests.adk.runner.agent.durable_agents import APP, Made, told
from tests.adk.runner.turns import Script, call

USER = "user"


def texts(memories: Sequence[MemoryEntry]) -> list[tuple[str | None, str | None]]:
    return [
        (memory.author, part.text) for memory in memories for part in memory.content.parts or ()
    ]


async def search(
    store_url: str, tenant: str, query: str, user: str = USER
) -> list[tuple[str | None, str | None]]:
    memory = SqlMemoryService(store_url, tenant=tenant)
    try:
        found = await memory.search_memory(app_name=APP, user_id=user, query=query)
    finally:
        await memory.close()
    return texts(found.memories)


def said(text: str, **fields: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    given: dict[str, Any] = {"author": "user", "invocation_id": "i", "content": content, **fields}
    return Event.model_validate(given)


def results(events: Sequence[TurnEvent]) -> list[Any]:
    """What the tools returned."""
    finished = [event.result or {} for event in events if isinstance(event, ToolFinished)]
    return [result["result"] for result in finished]


async def test_load_memory_finds_what_was_said_in_another_session(
    made: Made, store_url: str, tenant: str
) -> None:
    script = Script("Noted.", call("load_memory", query="cat name"), "Minka!", "I do not know.")
    root = script.agent("clerk", tools=[load_memory_tool])
    async with made(root, memory=True) as agent:
        await agent.run_and_collect("My cat's name is Minka.", session="one")
        events = await told(agent.stream("What is my cat's name?", session="two"))
        await agent.run_and_collect("What is my cat's name?", user="another", session="one")
    [[memory]] = [result["memories"] for result in results(events)]
    assert (memory["author"], memory["content"]["parts"]) == (
        "user",
        [{"text": "My cat's name is Minka."}],
    )
    assert memory["timestamp"].endswith("+00:00")
    assert "You have memory" in script.requests[0].messages[0].content
    assert await search(store_url, tenant, "Minka cat") == [
        ("user", "My cat's name is Minka."),
        ("clerk", "Minka!"),
        ("user", "What is my cat's name?"),
    ]
    assert await search(store_url, tenant, "Minka") == [
        ("clerk", "Minka!"),
        ("user", "My cat's name is Minka."),
    ]
    assert await search(store_url, tenant, "Minka", user="another") == []
    assert await search(store_url, f"{tenant}2", "Minka") == []


class Checker(BaseAgent):
    """An agent of a user's own class, whose events name no invocation."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        for writer in self.sub_agents:
            async for event in writer.run_async(ctx):
                yield event
        content = types.Content(role="model", parts=[types.Part(text="It is checked.")])
        yield Event(author=self.name, content=content)
        yield Event(author=self.name, actions=EventActions(escalate=True))


async def test_a_turn_with_events_that_name_no_invocation_is_remembered_whole(
    made: Made, store_url: str, tenant: str
) -> None:
    writer = Script("The cat is Minka.").agent("writer")
    root = Checker(name="checker", sub_agents=[writer])
    async with made(root, memory=True) as agent:
        await agent.run_and_collect("Write about the cat.", session="one")
    assert sorted(await search(store_url, tenant, "cat checked")) == [
        ("checker", "It is checked."),
        ("user", "Write about the cat."),
        ("writer", "The cat is Minka."),
    ]


async def test_preload_memory_puts_it_before_the_model(made: Made) -> None:
    script = Script("Noted.", "Minka.")
    async with made(script.agent("clerk", tools=[preload_memory_tool]), memory=True) as agent:
        await agent.run_and_collect("My cat is called Minka.", session="one")
        await agent.run_and_collect("What is my cat called?", session="two")
    sent = [message.content for message in script.requests[-1].messages]
    [preloaded] = [text for text in sent if "PAST_CONVERSATIONS" in text]
    assert "user: My cat is called Minka." in preloaded
    assert not any("PAST_CONVERSATIONS" in m.content for m in script.requests[0].messages)


async def test_without_the_setting_memory_has_what_code_adds(
    made: Made, store_url: str, tenant: str
) -> None:
    async def add(callback_context: CallbackContext) -> None:
        await callback_context.add_session_to_memory()

    root = Script("One.", "Two.").agent("clerk", after_agent_callback=add)
    async with made(root) as agent:
        await agent.run_and_collect("first")
        await agent.run_and_collect("second")
    assert await search(store_url, tenant, "first one two second") == [
        ("clerk", "Two."),
        ("user", "second"),
        ("clerk", "One."),
        ("user", "first"),
    ]


async def test_what_code_adds_is_not_doubled(made: Made, store_url: str, tenant: str) -> None:
    async def add(callback_context: CallbackContext) -> None:
        await callback_context.add_session_to_memory()
        await callback_context.add_events_to_memory(events=callback_context.session.events)

    root = Script("One.", "Two.").agent("clerk", after_agent_callback=add)
    async with made(root, memory=True) as agent:
        await agent.run_and_collect("first")
        await agent.run_and_collect("second")
    found = await search(store_url, tenant, "first one two second")
    assert len(found) == len(set(found)) == 4


async def test_a_tool_adds_searches_and_deletes(made: Made, store_url: str, tenant: str) -> None:
    async def note(fact: str, tool_context: ToolContext) -> list[str]:
        """Remember a fact."""
        entry = MemoryEntry(content=types.Content(parts=[types.Part(text=fact)]), author="clerk")
        for _ in range(2):  # the same fact is stored once
            await tool_context.add_memory(memories=[entry], custom_metadata={"kind": "fact"})
        found = (await tool_context.search_memory(fact)).memories
        assert [memory.custom_metadata for memory in found] == [{"kind": "fact"}]
        if "secret" in fact:
            await tool_context.delete_memory(found[0].id)
        return [part.text or "" for memory in found for part in memory.content.parts or ()]

    calls = [call("note", fact=fact) for fact in ("tea is served at five", "secret 4711")]
    root = Script(calls[0], "Noted.", calls[1], "Noted.").agent("clerk", tools=[note])
    async with made(root) as agent:
        for text in ("a", "b"):
            events = await told(agent.stream(text))
            assert [len(result) for result in results(events)] == [1]
    assert await search(store_url, tenant, "tea secret") == [("clerk", "tea is served at five")]


async def test_an_agent_that_runs_as_a_tool_has_the_same_memory(made: Made) -> None:
    child = Script(call("load_memory", query="Minka"), "found").agent(
        "child", tools=[load_memory_tool]
    )
    script = Script("Noted.", call("child", request="look"), "done")
    async with made(script.agent("clerk", tools=[AgentTool(child)]), memory=True) as agent:
        await agent.run_and_collect("My cat is called Minka.", session="one")
        await agent.run_and_collect("look", session="two")
        found = await agent._services.memory.search_memory(  # pyright: ignore[reportPrivateUsage]
            app_name=APP, user_id=USER, query="Minka look found done"
        )
    assert {text for _, text in texts(found.memories)} == {
        "My cat is called Minka.",
        "look",
        "done",
    }


async def test_a_turn_that_failed_is_not_remembered(
    made: Made, store_url: str, tenant: str
) -> None:
    def broken(callback_context: CallbackContext) -> None:
        raise ValueError(callback_context.agent_name)

    root = Script("never").agent("clerk", before_agent_callback=broken)
    async with made(root, memory=True) as agent:
        with pytest.raises(ValueError, match="clerk"):
            await agent.run_and_collect("first")
    assert await search(store_url, tenant, "first never") == []


async def test_a_deleted_session_is_forgotten(made: Made, store_url: str, tenant: str) -> None:
    async with made(Script("One.", "Two.").agent("clerk"), memory=True) as agent:
        await agent.run_and_collect("first", session="one")
        await agent.run_and_collect("second", session="two")
    async with SessionServiceAdapter(store_url, tenant=tenant) as sessions:
        await sessions.delete_session(app_name=APP, user_id=USER, session_id="one")
    assert await search(store_url, tenant, "first one two second") == [
        ("clerk", "Two."),
        ("user", "second"),
    ]


async def test_the_memory_of_a_user_is_deleted(made: Made, store_url: str, tenant: str) -> None:
    async with made(Script("One.", "Two.").agent("clerk"), memory=True) as agent:
        await agent.run_and_collect("first", user="ann")
        await agent.run_and_collect("first", user="bob")
    memory = SqlMemoryService(store_url, tenant=tenant)
    assert await memory.delete_all_memories(app_name=APP, user_id="ann") == 2
    assert await memory.delete_all_memories(app_name=APP, user_id="ann") == 0
    await memory.close()
    assert await search(store_url, tenant, "first one two", user="ann") == []
    assert len(await search(store_url, tenant, "first one two", user="bob")) == 2


async def test_without_a_store_memory_lives_in_the_process() -> None:
    root = Script(call("load_memory", query="x"), "Nothing.").agent(
        "clerk", tools=[load_memory_tool]
    )
    async with Agent(root) as agent:
        assert await agent.run_and_collect("hi") == "Nothing."
    with pytest.raises(ConfigError, match="needs a store"):
        Agent(LlmAgent(name="clerk"), memory=True)


async def test_sessions_of_another_service(store_url: str, tenant: str) -> None:
    """The service works for a plain ADK app, whose sessions are elsewhere."""
    elsewhere, memory = InMemorySessionService(), SqlMemoryService(store_url, tenant=tenant)
    session = await elsewhere.create_session(app_name=APP, user_id=USER, session_id="s")
    thought = types.Part(text="a thought", thought=True)
    answer = types.Content(role="model", parts=[thought, types.Part(text="a 東京 answer")])
    for event in (said("hello\x00 world"), said("", content=answer, author="clerk")):
        await elsewhere.append_event(session, event)
    for _ in range(2):
        await memory.add_session_to_memory(session)
    await memory.add_events_to_memory(app_name=APP, user_id=USER, events=[said("", content=None)])
    found = await memory.search_memory(app_name=APP, user_id=USER, query="world 東京 thought")
    assert texts(found.memories) == [("clerk", "a 東京 answer"), ("user", "hello\ufffd world")]
    assert [memory.content.role for memory in found.memories] == ["model", "user"]
    assert found.memories[0].custom_metadata == {"session_id": "s"}
    for wrong in (None, "", "x", "-1", "0", "9" * 30):
        await memory.delete_memory(app_name=APP, user_id=USER, memory_id=wrong)
    await memory.delete_memory(app_name=APP, user_id="other", memory_id=found.memories[0].id)
    assert len(await search(store_url, tenant, "world 東京")) == 2
    strict = SqlMemoryService(memory.store, tenant=tenant, requires_session=True)
    with pytest.raises(SessionNotFoundError):
        await strict.add_session_to_memory(session)
    await memory.close()


async def test_a_session_of_another_tenant_is_not_trusted(store_url: str, tenant: str) -> None:
    async with SessionServiceAdapter(store_url, tenant=tenant) as sessions:
        session = await sessions.create_session(app_name=APP, user_id=USER, session_id="s")
        await sessions.append_event(session, said("hello"))
        stranger = SqlMemoryService(sessions.store, tenant=f"{tenant}2", requires_session=True)
        with pytest.raises(SessionNotFoundError):
            await stranger.add_session_to_memory(session)
        await SqlMemoryService(sessions.store, tenant=tenant).add_session_to_memory(session)
    assert await search(store_url, tenant, "hello") == [("user", "hello")]


async def test_the_service_that_adk_creates(store_url: str, tenant: str) -> None:
    memory = RegisteredMemoryService(f"lango+{store_url}?tenant={tenant}", agents_dir="x")
    entry = MemoryEntry(content=types.Content(parts=[types.Part(text="a fact")]), timestamp="?")
    await memory.add_memory(app_name=APP, user_id=USER, memories=[entry])
    await memory.close()
    assert await search(store_url, tenant, "fact") == [(None, "a fact")]


async def test_an_answer_that_only_calls_tools_is_no_memory(
    made: Made, store_url: str, tenant: str
) -> None:
    def look() -> str:
        """Look."""
        return "seen by the tool"

    root = Script(Reply("Let me look.", calls=call("look").calls), "Done.").agent(
        "clerk", tools=[look]
    )
    async with made(root, memory=True) as agent:
        await agent.run_and_collect("please")
    found = await search(store_url, tenant, "let me look seen by the tool done please")
    assert {text for _, text in found} == {"please", "Let me look.", "Done."}


async def test_a_worker_serves_each_tenant_its_own_memory(store_url: str, tenant: str) -> None:
    """As in a server: one agent, and the turns of many tenants."""
    root = Script().agent("clerk", tools=[load_memory_tool])
    search = 'call load_memory {"query": "cat Minka1 Minka2"}'
    async with SqlSessionStore(store_url) as store, LocalEngine(store.database) as engine:
        agent = Agent(root, store=store, app_name=f"{APP}_{tenant[-8:]}", memory=True)
        assert agent.durable
        app = agent.runner.app.name
        worker = TurnWorker(store, engine, {app: agent.durable})
        await worker.start()
        for number in (1, 2):
            turns = Turns(store, engine, tenant=f"{tenant}-{number}")
            for text in (f"My cat is called Minka{number}.", search):
                ended = await turns.wait(await turns.submit(app, text, session=text[:4]))
                assert ended.state == "completed"
            answer = await turns.answer_text(ended) or ""
            assert f"called Minka{number}." in answer
            assert f"called Minka{3 - number}." not in answer
        await worker.stop()
        await agent.close()
