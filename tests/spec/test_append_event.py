"""What `append_event` does to the session object at hand."""

import pytest
from google.adk.agents.callback_context import CallbackContext

from lango.core.messages.messages import Message
from tests.spec.talk import (
    ASK,
    ROOT,
    TELLINGS,
    Service,
    Telling,
    agent,
    conversation,
    create,
    event,
    load,
    reload,
    rows,
    service_on,
    state_only,
    text,
    texts_of,
    turn,
)

tellings = pytest.mark.parametrize("tell", TELLINGS)


@pytest.mark.scenario("User message visible after AppendEvent")
async def test_user_message_visible_after_append_event(store_url: str, tenant: str) -> None:
    async with service_on(store_url, tenant) as service:
        session = await create(service)
        await service.append_event(session, event("user", text("hello")))

        # It is in the database …
        assert [(row.role, row.content) for row in await rows(store_url, tenant)] == [
            ("user", "hello")
        ]
        # … in the history of the session object …
        assert session.history == [Message("user", "hello", (), "user")]
        # … and among its events, each time one looks.
        for _ in range(2):
            [shown] = session.events
            assert shown.content
            assert shown.content.parts == [text("hello")]
            assert shown.author == "user"


async def test_the_first_message_reaches_the_model(store_url: str, tenant: str) -> None:
    """A Runner's model sees the message that this very turn appended."""
    async with service_on(store_url, tenant) as service:
        await create(service)
        requests = await turn(service, "hello")
        assert [texts_of(request) for request in requests] == [["hello"]]
        assert [message.content for message in service.handed[-1].history] == [
            "hello",
            "you said: hello",
        ]


@tellings
@pytest.mark.scenario("Multiple events accumulate in memory")
async def test_multiple_events_accumulate_in_memory(
    tell: Telling, store_url: str, tenant: str
) -> None:
    async with service_on(store_url, tenant) as service:
        session = await tell(service)
        assert session.history == conversation(session)
        assert [one.author for one in session.events] == ["user", ROOT, ROOT, ROOT]

        for number in range(20):
            await service.append_event(session, event("user", text(str(number))))
        assert [message.content for message in session.history[4:]] == [
            str(number) for number in range(20)
        ]
        assert len(session.events) == 24
    # In the order in which they stand in the database, too.
    assert (await reload(store_url, tenant)).history == session.history


def _note(callback_context: CallbackContext) -> None:
    """A callback that leaves an event with nothing but a state delta."""
    callback_context.state["mood"] = "good"


async def _noted_by_hand(service: Service) -> None:
    session = await create(service)
    await service.append_event(session, event("user", text(ASK)))
    await service.append_event(session, state_only({"mood": "good"}))
    service.handed.append(session)


async def _noted_by_runner(service: Service) -> None:
    await create(service)
    await turn(service, "hi", root=agent(before_agent_callback=_note))


@pytest.mark.parametrize(
    ("note", "expected"),
    [(_noted_by_hand, [ASK]), (_noted_by_runner, ["hi", "you said: hi"])],
    ids=["by_hand", "by_runner"],
)
@pytest.mark.scenario("State-delta-only events skip history")
async def test_state_delta_only_events_skip_history(
    note: Telling, expected: list[str], store_url: str, tenant: str
) -> None:
    async with service_on(store_url, tenant) as service:
        await note(service)
        session = service.handed[-1]

        # Not in the history of the session object, nor among its events …
        assert [message.content for message in session.history] == expected
        assert len(session.events) == len(expected)
        # … nor a row in the database …
        assert [row.content for row in await rows(store_url, tenant)] == expected
        assert len((await load(service)).events) == len(expected)
        # … but its values are saved.
        assert session.state["mood"] == "good"
    assert (await reload(store_url, tenant)).state["mood"] == "good"


async def test_an_event_that_carries_nothing_leaves_no_trace(store_url: str, tenant: str) -> None:
    async with service_on(store_url, tenant) as service:
        session = await create(service)
        await service.append_event(session, state_only({}))
        assert session.history == session.events == await rows(store_url, tenant) == []
