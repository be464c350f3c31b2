"""The failures of test_what_broke, as each vendor's server sees them, across a restart.

The servers refuse what the vendors refuse. "A new process" is one: it has the database, the
address of the server, and nothing else.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
import sqlalchemy as sa

from lango.store.sessions.store import SqlSessionStore
from lango.testing.wires import WIRES, Call, ScriptedAnswer, WireServer
from tests.adk.runner.parity.processes import in_new_process
from tests.adk.runner.regressions.wire_talks import Line, TalkConfig, lines, say, say_alone

STORES = {
    "openai_chat": "sqlite_url",
    "openai_responses": "postgres_url",
    "anthropic": "postgres_url",
    "gemini": "sqlite_url",
}
"""Where each is stored: that both databases keep the same, other tests show."""
LOOK_TWICE = ScriptedAnswer(
    "Let me look.", (Call("look", '{"number": 1}', "c1"), Call("look", '{"number": 2}', "c2"))
)
LOOK_AGAIN = ScriptedAnswer(calls=(Call("look", '{"number": 3}', "c1"),))


@pytest_asyncio.fixture(params=WIRES)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[WireServer]:
    """A model of each vendor."""
    async with WireServer(request.param) as server:
        yield server
        assert server.refused == []


@pytest.fixture
def config(server: WireServer, request: pytest.FixtureRequest, tenant: str) -> TalkConfig:
    """A conversation with it that has not begun."""
    store = request.getfixturevalue(STORES[server.wire.name])
    return TalkConfig(server.wire.name, server.url, store, tenant)


def sent(server: WireServer, number: int = -1) -> list[Line]:
    """What a request said, the last one unless told."""
    return lines(server.wire.name, server.requests[number].body)


def talk(server: WireServer) -> list[Line]:
    """What the last request said behind its instruction."""
    return [(who, text) for who, text in sent(server) if who != "system"]


async def test_the_first_message_and_the_instruction_arrive(
    server: WireServer, config: TalkConfig
) -> None:
    """They were empty, and ignored."""
    first = await in_new_process(say_alone, config, "hello")
    assert first.answers == ["Hello."]
    for number in (0, -1):
        who, instruction = sent(server, number)[0]
        assert who == "system"
        assert "Be brief." in instruction
        assert "helper" not in instruction
        if number == 0:
            assert talk(server) == [("user", "hello")]
            await say(config, "again")
    assert talk(server) == [("user", "hello"), ("assistant", "Hello."), ("user", "again")]


async def test_a_silent_model_is_not_made_to_repeat_itself(
    server: WireServer, config: TalkConfig
) -> None:
    """An empty assistant turn was stored, and the bot gave its previous answer again."""
    server.say(ScriptedAnswer("One."), ScriptedAnswer(""), ScriptedAnswer("Three."))
    await say(config, "one")
    await _silence(config, "two")
    answer = await in_new_process(say_alone, config, "three")
    assert answer.answers == ["Three."]
    assert all(text for _, text in sent(server))
    assert [text for who, text in talk(server) if who == "assistant"] == ["One."]
    assert talk(server)[-1][0] == "user"
    assert talk(server)[-1][1].endswith("three")


async def _silence(config: TalkConfig, text: str) -> None:
    """A turn in which the model says nothing: the caller gets an empty answer."""
    answer = await say(config, text)
    assert answer.answers == [""]


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "retried"])
async def test_an_invented_agent_does_not_end_the_turn(
    server: WireServer, config: TalkConfig, guarded: bool
) -> None:
    """By the guard inside the run; without it, by running once more. The session stays sound."""
    bad = ScriptedAnswer("One moment.", (Call("transfer_to_agent", '{"agent_name": "ghost"}'),))
    server.say(bad, ScriptedAnswer("I do it myself."), ScriptedAnswer("Still here."))
    config = replace(config, helper=True, guarded=guarded)
    answer = await say(config, "help")
    assert answer.answers[0].endswith("I do it myself.")
    corrected = [(who, text) for who, text in talk(server) if "ghost" in text]
    who, correction = corrected[-1]
    assert who == ("result" if guarded else "user")
    assert "helper" in correction
    answer = await in_new_process(say_alone, config, "and now?")
    assert answer.answers == ["Still here."]
    assert talk(server)[-1][1].endswith("and now?")


_AS_AN_OLDER_SYSTEM_WROTE_THEM = """
update messages set author = :author, event = null,
  role = case role when 'assistant' then 'model' when 'tool' then 'function' else role end
where session_pk in (select pk from sessions where tenant = :tenant) and author != 'user'"""


async def _rewrite(config: TalkConfig, author: str) -> None:
    """Make the rows of the agent look as if an older system had written them."""
    result = {"tenant": config.tenant, "author": author}
    async with SqlSessionStore(config.store) as store, store.database.begin() as connection:
        await connection.execute(sa.text(_AS_AN_OLDER_SYSTEM_WROTE_THEM), result)


async def test_replayed_events_raise_no_warnings(server: WireServer, config: TalkConfig) -> None:
    """An author "model" filled the log; also rows of a system that knew roles only have one."""
    server.say(LOOK_TWICE, ScriptedAnswer("Seen."), ScriptedAnswer("Well."))
    await say(config, "look")
    assert (await in_new_process(say_alone, config, "again")).warnings == []
    before = talk(server)
    await _rewrite(config, author="")
    answer = await in_new_process(say_alone, config, "and again")
    assert answer.warnings == []
    assert talk(server) == [*before, ("assistant", "Well."), ("user", "and again")]
    # What this test listens for is there to be heard.
    await _rewrite(config, author="model")
    assert "unknown agent: model" in " ".join((await say(config, "and now?")).warnings)


async def test_the_turn_after_a_tool_call_is_accepted(
    server: WireServer, config: TalkConfig
) -> None:
    """Every one of them was rejected, for a reload tore calls and results apart."""
    server.say(
        LOOK_TWICE, LOOK_AGAIN, ScriptedAnswer("Seen."), LOOK_AGAIN, ScriptedAnswer("Seen again.")
    )
    await say(config, "look")
    answer = await in_new_process(say_alone, config, "once more")
    assert answer.answers == ["Seen again."]
    kinds = [who for who, _ in talk(server)]
    first = ["user", "assistant", "call", "call", "result", "result", "call", "result", "assistant"]
    assert kinds == [*first, "user", "call", "result"]
    results = [text for who, text in talk(server) if who == "result"]
    assert [
        f'"number":{number}' in text for number, text in zip((1, 2, 3, 3), results, strict=True)
    ]


async def test_no_output_is_missing_after_a_truncation(
    server: WireServer, config: TalkConfig
) -> None:
    """ "No tool output found": the window began between a call and its result."""
    server.say(*[LOOK_TWICE, LOOK_AGAIN, ScriptedAnswer("Seen.")] * 3, ScriptedAnswer("Well."))
    await say(config, *[f"look {number}" for number in range(3)])
    whole = len(talk(server))
    lengths: set[int] = set()
    for budget in range(30, 400, 60):
        await say(replace(config, token_budget=budget), "next")
        lengths.add(len(talk(server)))
        assert talk(server)[-1][1].endswith("next")
    assert len(lengths) > 3, "the cut never moved"
    assert min(lengths) < whole
    answer = await in_new_process(say_alone, replace(config, token_budget=200), "last")
    assert answer.answers == ["Well."]


async def test_a_text_in_the_state_stays_a_text(server: WireServer, config: TalkConfig) -> None:
    """A state value "123" came back as a number."""
    keep = Call("remember", '{"key": "number", "value": "123"}')
    server.say(ScriptedAnswer(calls=(keep,)), ScriptedAnswer("Kept."))
    await say(config, "remember 123")
    server.say(
        ScriptedAnswer(calls=(Call("recall", '{"key": "number"}'),)), ScriptedAnswer("It is 123.")
    )
    answer = await in_new_process(say_alone, config, "what was it?")
    assert answer.state["number"] == "123"
    assert "The number is 123." in sent(server)[0][1]
    assert talk(server)[-1] == ("result", '{"value":"123"}')
