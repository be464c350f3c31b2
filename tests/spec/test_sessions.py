"""Loading and saving a session."""

import pytest

from lango.adk.sessions.decode import EventsAdapter
from lango.core.messages.messages import Message
from lango.testing.same import differences
from tests.spec.talk import (
    ARGUMENTS,
    ASK,
    REPORT,
    RESULT,
    ROOT,
    TELLINGS,
    Telling,
    conversation,
    load,
    reload,
    rows,
    service_on,
    texts_of,
    turn,
)

tellings = pytest.mark.parametrize("tell", TELLINGS)


@tellings
@pytest.mark.scenario("Load Session")
async def test_load_session(tell: Telling, store_url: str, tenant: str) -> None:
    async with service_on(store_url, tenant) as service:
        answer = await tell(service)
    loaded = await reload(store_url, tenant)

    # The session and its messages come from the store …
    assert (loaded.app_name, loaded.user_id, loaded.id) == (
        answer.app_name,
        answer.user_id,
        answer.id,
    )
    assert loaded.history == conversation(loaded) == answer.history
    assert loaded.whole
    # … in the format of ADK: events with parts.
    question, called, answered, reported = (one.content for one in loaded.events)
    assert question
    assert called
    assert answered
    assert reported
    assert [part.text for part in question.parts or []] == [ASK]
    assert [part.text for part in reported.parts or []] == [REPORT]
    assert [part.function_call and part.function_call.args for part in called.parts or []] == [
        ARGUMENTS
    ]
    assert [
        part.function_response and part.function_response.response for part in answered.parts or []
    ] == [RESULT]
    assert [content.role for content in (question, called, answered, reported)] == [
        "user",
        "model",
        "function",
        "model",
    ]
    assert [one.author for one in loaded.events] == ["user", ROOT, ROOT, ROOT]
    assert [one.id for one in loaded.events] == [one.id for one in answer.events]


@tellings
async def test_a_loaded_session_goes_on(tell: Telling, store_url: str, tenant: str) -> None:
    """The model of a new Runner receives all earlier messages."""
    async with service_on(store_url, tenant) as service:
        await tell(service)
    async with service_on(store_url, tenant) as service:
        [request] = await turn(service, "and now?")
    assert texts_of(request) == [ASK, REPORT, "and now?"]
    assert [content.role for content in request] == ["user", "model", "function", "model", "user"]


async def test_a_session_that_does_not_exist_is_none(store_url: str, tenant: str) -> None:
    async with service_on(store_url, tenant) as service:
        assert await service.get_session(app_name="app", user_id="user", session_id="none") is None


@tellings
@pytest.mark.scenario("Save Session")
async def test_save_session(tell: Telling, store_url: str, tenant: str) -> None:
    async with service_on(store_url, tenant) as service:
        session = await tell(service)

        # New messages and the state are in the database …
        stored = await rows(store_url, tenant)
        assert [(row.role, row.author) for row in stored] == [
            ("user", "user"),
            ("assistant", ROOT),
            ("tool", ROOT),
            ("assistant", ROOT),
        ]
        assert [row.content for row in stored if row.role != "tool"] == [ASK, "", REPORT]
        assert stored[1].tool_calls[0]["input"] == ARGUMENTS
        assert stored[2].tool_calls[0]["output"] == RESULT
        # … the state with its types: a text of digits stays a text …
        assert differences({"number": "123"}, (await reload(store_url, tenant)).state) == []
        # … and the session object at hand shows what was stored.
        assert session.history == conversation(session) == (await load(service)).history
        assert session.state == {"number": "123"}


async def test_every_scope_of_state_is_saved(store_url: str, tenant: str) -> None:
    async with service_on(store_url, tenant) as service:
        await service.create_session(app_name="app", user_id="user-1", session_id="session-1")
        keys = ("plain", "user:theirs", "app:everybodys", "temp:passing")
        for key in keys:
            await turn(service, f'do remember {{"key": "{key}", "value": "v"}}')
    loaded = await reload(store_url, tenant)
    assert loaded.state == {key: "v" for key in keys[:3]}


@pytest.mark.parametrize("root", ["", ROOT])
async def test_history_and_events_agree(root: str, store_url: str, tenant: str) -> None:
    """`EventsAdapter` makes of the history what the store makes of its rows."""
    async with service_on(store_url, tenant) as service:
        session = await TELLINGS[0](service)
    rebuilt = EventsAdapter(session.history, root).all()
    loaded = await reload(store_url, tenant)
    assert all(isinstance(message, Message) for message in session.history)
    assert [one.author for one in rebuilt] == [one.author for one in loaded.events]
    for ours, theirs in zip(rebuilt, loaded.events, strict=True):
        assert differences(theirs.content, ours.content) == []
