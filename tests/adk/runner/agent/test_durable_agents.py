"""An agent with a store: its turns go through the database; its events stay the same."""

import asyncio
from contextlib import aclosing

import pytest
from google.adk.agents.callback_context import CallbackContext

from lango.adk.apps.build import llm_agent
from lango.adk.plugins import plugins
from lango.adk.sessions.service import SessionServiceAdapter
from lango.agent.agent import Agent
from lango.core.turns.events import (
    Cancelled,
    Completed,
    Failed,
    MessageDelta,
    Started,
    ToolStarted,
    TurnEvent,
)
from lango.errors import (
    InvalidIdError,
    ModelUnavailableError,
    TurnError,
    TurnLimitError,
    TurnNotFoundError,
)
from lango.store.sessions.store import SqlSessionStore
from lango.testing import Fault, Reply, ScriptedProvider
from lango.turns.engine.database import LocalEngine
from lango.turns.service import Turns
from lango.turns.worker import TurnWorker, WorkerOptions
from tests.adk.runner.agent.durable_agents import APP, Made, service, told
from tests.adk.runner.turns import Script, agent, call, kinds, said, transfer

# --- the same as ever ------------------------------------------------------------------------


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_its_events_equal_those_of_an_agent_in_memory(made: Made) -> None:
    replies = [call("add", "Let me see.", a=2, b=3), Reply("It is 5.", thoughts="So five.")]
    async with Agent(agent("root", *replies, tools=[add])) as in_memory:
        expected = await told(in_memory.stream("hi"))
    async with made(agent("root", *replies, tools=[add])) as durable:
        events = await told(durable.stream("hi"))
    assert kinds(events) == kinds(expected)
    assert said(events) == said(expected)
    deltas = [[e.text for e in ran if isinstance(e, MessageDelta)] for ran in (events, expected)]
    assert deltas[0] == deltas[1]
    assert events[-1] == expected[-1]


async def test_a_turn_is_in_the_database(made: Made, store_url: str, tenant: str) -> None:
    async with made(agent("root", "Hello.")) as durable:
        assert await durable.run_and_collect("hi", session="s") == "Hello."
        assert await durable.unfinished(session="s") == []
    async with service(store_url, tenant) as turns:
        [turn] = await turns.of_session(APP, session="s")
        events = [event async for event in turns.events(turn.id)]
    assert (turn.state, turn.attempts, turn.input) == ("completed", 1, {"text": "hi"})
    assert [event.type for event in events][:2] == ["accepted", "started"]
    assert events[-1].type == "completed"


async def test_turns_of_one_session_wait_for_each_other(made: Made) -> None:
    async with made(llm_agent("root", ScriptedProvider(delay=0.01))) as durable:
        texts = [f"message {number}" for number in range(4)]
        answers = await asyncio.gather(*map(durable.run_and_collect, texts))
    assert answers == [f"You said: {text}" for text in texts]


async def test_the_second_try_for_an_agent_that_was_made_up(made: Made) -> None:
    script = Script(transfer("ghost"), "I do it myself.")
    root = script.agent("root", sub_agents=[agent("helper")])
    async with made(root, plugins=[]) as durable:
        events = await told(durable.stream("hi"))
    assert [event for event in events if isinstance(event, Started)] == [Started(1), Started(2)]
    assert kinds(events).count("retrying") == 1
    assert said(events) == [("root", "I do it myself.")]
    assert "Valid agents: helper" in script.requests[-1].messages[-1].content


async def test_the_second_try_is_for_the_agent_that_made_the_mistake(made: Made) -> None:
    helper = agent("helper", "I help.", transfer("ghost"), "I help again.")
    root = agent("root", transfer("helper"), transfer("helper"), sub_agents=[helper])
    async with made(root, plugins=[], next_turn="root") as durable:
        assert await durable.run_and_collect("hi") == "I help."
        events = await told(durable.stream("hi"))
    assert said(events) == [("helper", "I help again.")]


async def test_the_root_answers_each_turn_if_it_should(made: Made) -> None:
    root = agent("root", transfer("helper"), "I am back.", sub_agents=[agent("helper", "I help.")])
    async with made(root, next_turn="root") as durable:
        assert await durable.run_and_collect("hi") == "I help."
        assert await durable.run_and_collect("hi") == "I am back."


# --- how it ends -----------------------------------------------------------------------------


async def test_the_very_error_that_ended_the_turn_is_raised(made: Made) -> None:
    error = ModelUnavailableError("It is gone.", provider="scripted", status=503)
    fault = Fault(2, error)
    async with made(agent("root", Reply("one two three", fault=fault), "Here again.")) as durable:
        with pytest.raises(ModelUnavailableError) as caught:
            await durable.run_and_collect("hi")
        assert caught.value is error
        assert (caught.value.status, caught.value.partial_text) == (503, "one two")
        assert await durable.run_and_collect("again") == "Here again."


async def test_an_error_of_other_code_is_the_one_that_was_raised(made: Made) -> None:
    error = LookupError("somewhere inside")

    def fail(callback_context: CallbackContext) -> None:
        del callback_context
        raise error

    async with made(agent("root", "never", before_agent_callback=fail)) as durable:
        with pytest.raises(LookupError) as caught:
            await durable.run_and_collect("hi")
    assert caught.value is error


async def test_a_limit_ends_the_turn_with_its_error(
    made: Made, store_url: str, tenant: str
) -> None:
    root = agent("root", *[call("add", a=1, b=n) for n in range(9)], tools=[add])
    async with SqlSessionStore(store_url) as store:
        usual = plugins(store, tenant=tenant, model_calls=2)
        async with made(root, plugins=usual) as durable:
            with pytest.raises(TurnLimitError) as caught:
                await durable.run_and_collect("hi")
    assert (caught.value.limit, caught.value.allowed) == ("model_calls", 2)


FAILURES: dict[str, tuple[Exception, type[Exception], str]] = {
    "ours": (
        ModelUnavailableError("It is gone.", provider="scripted", status=503),
        ModelUnavailableError,
        "It is gone. (scripted demo, HTTP 503)",
    ),
    "another's": (LookupError("a secret"), TurnError, "Something went wrong inside the agent"),
}


@pytest.mark.parametrize("whose", FAILURES)
async def test_the_error_of_a_turn_that_another_process_ran(
    made: Made, store_url: str, tenant: str, whose: str
) -> None:
    error, kind, words = FAILURES[whose]
    reply = Reply("one two three", fault=Fault(2, error))
    async with (
        SqlSessionStore(store_url) as store,
        LocalEngine(store.database) as engine,
        Agent(agent("root", reply), store=store, tenant=tenant, app_name=APP) as elsewhere,
    ):
        turns = Turns(store, engine, tenant=tenant)
        turn = await turns.submit(APP, "hi")
        assert elsewhere.durable
        async with TurnWorker(store, engine, {APP: elsewhere.durable}):
            await turns.wait(turn.id)
    async with made(agent("root")) as durable:
        events = await told(durable.resume(turn.id))
    end = events[-1]
    assert isinstance(end, Failed)
    assert type(end.error) is kind
    assert str(end.error).startswith(words)
    assert "secret" not in str(end.error)
    assert end.text == "one two"
    assert events[0] == Started(1)


async def test_what_cannot_be_handed_in_ends_as_a_turn_does(made: Made) -> None:
    async with made(agent("root", "never")) as durable:
        events = await told(durable.stream("hi", user="", session="s"))
        assert kinds(events) == ["started", "failed"]
        with pytest.raises(InvalidIdError):
            await durable.run_and_collect("hi", session="bad\x00")


async def test_a_stream_is_ended_by_its_abort(made: Made) -> None:
    abort = asyncio.Event()
    words = " ".join(map(str, range(200)))
    events: list[TurnEvent] = []
    async with made(llm_agent("root", ScriptedProvider([words, "Next."], delay=0.02))) as durable:
        async for event in durable.stream("hi", abort=abort):
            events.append(event)
            if isinstance(event, MessageDelta):
                abort.set()
        assert await durable.run_and_collect("again") == "Next."
    end = events[-1]
    assert isinstance(end, Cancelled)
    assert end.text.startswith("0")
    assert "".join(e.text for e in events if isinstance(e, MessageDelta)) == end.text


async def test_a_stream_that_is_left_is_cancelled(made: Made, store_url: str, tenant: str) -> None:
    words = " ".join(map(str, range(200)))
    async with made(llm_agent("root", ScriptedProvider([words], delay=0.02))) as durable:
        async with aclosing(durable.stream("hi")) as events:
            async for event in events:
                if isinstance(event, MessageDelta):
                    break
        async with service(store_url, tenant) as turns:
            [turn] = await turns.of_session(APP)
            assert (await turns.wait(turn.id)).state == "cancelled"


async def test_an_agent_that_is_closed_lets_its_turns_end(made: Made) -> None:
    durable = made(llm_agent("root", ScriptedProvider(["one two three four"], delay=0.05)))
    events: list[TurnEvent] = []
    async for event in durable.stream("hi"):
        events.append(event)
        if isinstance(event, MessageDelta):
            await durable.close()
    assert isinstance(events[-1], Completed)


async def test_turns_have_as_long_to_end_as_the_options_say(made: Made) -> None:
    words = " ".join(map(str, range(200)))
    root = llm_agent("root", ScriptedProvider([words], delay=0.02))
    durable = made(root, worker=WorkerOptions(drain=0.0))
    events: list[TurnEvent] = []
    async for event in durable.stream("hi"):
        events.append(event)
        if isinstance(event, MessageDelta):
            await durable.close()
    assert isinstance(events[-1], Failed)
    assert "closed while its turn ran" in str(events[-1].error)


# --- what others left ------------------------------------------------------------------------


async def test_an_agent_resumes_queued_turns(made: Made, store_url: str, tenant: str) -> None:
    async with service(store_url, tenant) as turns:
        left = [(await turns.submit(APP, text)).id for text in ("one", "two")]
    async with made(llm_agent("root", ScriptedProvider())) as durable:
        assert await durable.unfinished() == left
        answers = [said(await told(durable.resume(turn))) for turn in left]
        assert await durable.unfinished() == []
    assert answers == [[("root", "You said: one")], [("root", "You said: two")]]


async def test_an_agent_runs_no_turns_but_its_callers(
    made: Made, store_url: str, tenant: str
) -> None:
    async with service(store_url, tenant) as turns:
        left = await turns.submit(APP, "of another caller", session="other")
        async with made(llm_agent("root", ScriptedProvider())) as durable:
            assert await durable.run_and_collect("hi") == "You said: hi"
        assert (await turns.get(left.id)).state == "queued"


async def test_a_turn_that_is_not_there(made: Made) -> None:
    async with made(agent("root")) as durable:
        with pytest.raises(TurnNotFoundError):
            await told(durable.resume("turn_x"))
    async with Agent(agent("root")) as in_memory:
        assert await in_memory.unfinished() == []
        with pytest.raises(TurnNotFoundError, match="Without a store"):
            in_memory.resume("turn_x")


async def test_a_tool_that_runs_when_its_turn_is_lost_is_ended(
    made: Made, store_url: str, tenant: str
) -> None:
    """The session is deleted while the tool runs: the caller gets an error, and nothing hangs."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def dig() -> None:
        """Dig for ever."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with made(agent("root", call("dig"), tools=[dig])) as durable:
        events: list[TurnEvent] = []
        async for event in durable.stream("hi"):
            events.append(event)
            if isinstance(event, ToolStarted):
                await begun.wait()
                async with SessionServiceAdapter(store_url, tenant=tenant) as sessions:
                    await sessions.delete_session(
                        app_name=APP, user_id="user", session_id="default"
                    )
        await ended.wait()
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, TurnNotFoundError)
