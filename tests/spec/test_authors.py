"""Who said what: authors of rebuilt events."""

import logging

import pytest

from lango.adk.sessions.decode import EventsAdapter
from lango.core.messages.authors import DEFAULT_AGENT_NAME
from lango.core.messages.messages import Message, ToolCall
from tests.spec.talk import (
    ROOT,
    TELLINGS,
    Telling,
    create,
    event,
    insert_rows,
    load,
    reload,
    service_on,
    text,
    texts_of,
    turn,
)

UNKNOWN_AGENT = "Event from an unknown agent"
"""How ADK's warning about an author that is no agent's name begins."""


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What ADK warns of."""
    caplog.set_level(logging.WARNING, logger="google_adk")
    return caplog


def authors(*history: Message, root: str = ROOT) -> list[str]:
    return [one.author for one in EventsAdapter(history, root).all()]


@pytest.mark.parametrize("tell", TELLINGS)
@pytest.mark.scenario("Event Author Mapping")
async def test_event_author_mapping(tell: Telling, store_url: str, tenant: str) -> None:
    # By its role, where nothing else says whose a message is.
    assert authors(Message("user", "hi"), Message("assistant", "ho")) == ["user", ROOT]
    # A stored author wins.
    assert authors(Message("assistant", "ho", (), "helper")) == ["helper"]

    async with service_on(store_url, tenant) as service:
        await tell(service)
    loaded = await reload(store_url, tenant)
    by_role = [(m.role, e.author) for m, e in zip(loaded.history, loaded.events, strict=True)]
    assert by_role == [("user", "user"), ("assistant", ROOT), ("tool", ROOT), ("assistant", ROOT)]


@pytest.mark.scenario("Model role mapping")
async def test_model_role_mapping(
    store_url: str, tenant: str, warnings: pytest.LogCaptureFixture
) -> None:
    message = Message("model", "hello there")
    assert authors(message) == [ROOT]
    assert authors(message, root="") == [DEFAULT_AGENT_NAME] == ["lango-agent"]

    async with service_on(store_url, tenant) as service:
        await create(service)
        await insert_rows(store_url, tenant, [Message("user", "hello"), message])
        loaded = await load(service)
        assert [one.author for one in loaded.events] == ["user", ROOT]
        assert "model" not in {one.author for one in loaded.events}
        # Told to a real Runner, it is the agent's own answer, not a stranger's quoted one.
        [request] = await turn(service, "and now?")
    assert [content.role for content in request] == ["user", "model", "user"]
    assert texts_of(request) == ["hello", "hello there", "and now?"]
    assert _unknown_agents(warnings) == []
    nameless = await reload(store_url, tenant, root_agent_name="")
    assert nameless.events[1].author == "lango-agent"


@pytest.mark.parametrize("role", ["narrator", "developer", "", "MODEL"])
@pytest.mark.scenario("Unknown role fallback")
async def test_unknown_role_fallback(
    role: str, store_url: str, tenant: str, warnings: pytest.LogCaptureFixture
) -> None:
    message = Message(role, "once upon a time")
    assert authors(message) == [ROOT]
    assert authors(message, root="") == ["lango-agent"]

    async with service_on(store_url, tenant) as service:
        await create(service)
        await insert_rows(store_url, tenant, [Message("user", "hello"), message])
        assert [one.author for one in (await load(service)).events] == ["user", ROOT]
        # A real Runner looks through the authors for the agent that is to go on.
        [request] = await turn(service, "and now?")
        await turn(service, "again")
    assert texts_of(request) == ["hello", "once upon a time", "and now?"]
    assert _unknown_agents(warnings) == []


async def test_an_unknown_author_is_what_adk_warns_of(
    store_url: str, tenant: str, warnings: pytest.LogCaptureFixture
) -> None:
    """So that the tests above would hear the warning if there were one."""
    async with service_on(store_url, tenant) as service:
        session = await create(service)
        await service.append_event(session, event("model", text("by an unknown author")))
        await turn(service, "and now?")
    assert len(_unknown_agents(warnings)) == 1


@pytest.mark.parametrize("role", ["tool", "function"])
async def test_a_tool_message_is_the_callers(role: str) -> None:
    """An author "tool" would make ADK drop the call."""
    call_message = Message("assistant", "", (ToolCall("1", "exec", input="{}"),), "helper")
    answered = Message(role, "", (ToolCall("1", "exec", output="{}"),))
    assert authors(call_message, answered) == ["helper", "helper"]
    assert authors(answered) == [ROOT]


def _unknown_agents(log: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in log.records]
    return [message for message in messages if message.startswith(UNKNOWN_AGENT)]
