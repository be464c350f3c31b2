"""Completions are turns: a disconnect stops no turn, and the response says how a turn ended."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import openai
import pytest

from lango.core.messages.conversations import VisibleMessage
from lango.core.turns.events import (
    Approval,
    ApprovalRequired,
    Completed,
    Event,
    Failed,
    InputRequired,
    MessageCompleted,
    MessageDelta,
    MessageReset,
)
from lango.errors import RateLimitedError, TurnNotFoundError
from lango.providers.base import ModelRequest
from lango.providers.scripted import Reply, ScriptedProvider
from lango.server.backend import services_of
from lango.server.openai.answers import DeltaReader, chunks
from lango.server.openai.sessions import SentConversation
from lango.store.sessions.conversations import ConversationStore
from lango.store.turns.log import LoggedEvent
from lango.store.turns.rows import Turn
from lango.turns.service import Turns
from tests.server.openai.clients import answered, assistant, sdk, streamed, user
from tests.server.served_apps import PATIENCE, Live, ServedApp, live

HOLD = 'call hold {"name": "go"}'


async def held(
    server: Live, client: Any, *, stream: bool, **more: Any
) -> tuple[asyncio.Task[Any], Turn]:
    """A client that waits for a turn, and the turn, which ends once a file exists."""

    async def ask() -> list[Any]:
        request = client.chat.completions.create(
            model=server.served.agent, messages=[user(HOLD)], stream=stream, **more
        )
        told = await request
        return [chunk async for chunk in told] if stream else [told]

    asking = asyncio.create_task(ask())
    await server.served.process.workspace.effects.wait(lambda effects: "held go" in effects)
    [session] = (
        await server.served.process.store.page(server.served.tenant, server.served.agent)
    ).items
    [turn] = await server.served.turns().of_session(
        session.app_name, user=session.user_id, session=session.id
    )
    return asking, turn


async def all_streams_closed(served: ServedApp) -> None:
    async with asyncio.timeout(PATIENCE):
        while services_of(served.app).streams.slots:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.005)


WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@WAYS
async def test_a_disconnect_stops_no_turn(stream: bool, sqlite_served: ServedApp) -> None:
    async with live(sqlite_served, sqlite_served.worker()) as server, sdk(server) as client:
        asking, turn = await held(server, client, stream=stream)
        asking.cancel()
        await asyncio.wait([asking])
        await all_streams_closed(sqlite_served)
        (sqlite_served.process.workspace.folder / "go").touch()
        assert (await sqlite_served.turns().wait(turn.id)).state == "completed"


async def break_off(served: ServedApp, client: Any, text: str) -> str:
    """Say something, and leave in the middle of its answer, which is returned."""
    stream = await client.chat.completions.create(
        model=served.agent, messages=[user(text)], stream=True
    )
    has = ""
    while len(has) < 6:
        has += (await anext(stream)).choices[0].delta.content or ""
    await stream.close()
    store = ConversationStore(served.process.store.database)
    known_by = SentConversation((), (VisibleMessage("user", text),)).known_by(None)
    assert await store.find(served.tenant, "ann", served.agent, known_by)
    return has[:-2]  # not all that was sent arrived


async def test_a_conversation_goes_on_behind_an_answer_that_was_broken_off(
    sqlite_served: ServedApp,
) -> None:
    async with live(sqlite_served, sqlite_served.worker()) as server, sdk(server) as client:
        has = await break_off(sqlite_served, client, "Tell me a story")
        messages = [user("Tell me a story"), assistant(has), user("Go on")]
        answer = await answered(client, sqlite_served.agent, messages)
        await answered(client, sqlite_served.agent, [*messages, assistant(answer), user("Thanks")])
        [session] = (
            await sqlite_served.process.store.page(sqlite_served.tenant, sqlite_served.agent)
        ).items
        turns = await sqlite_served.turns().of_session(
            session.app_name, user=session.user_id, session=session.id
        )
    texts = [turn.input["text"] for turn in reversed(turns)]
    assert texts == ["Tell me a story", "Go on", "Thanks"]


@pytest.mark.parametrize("edited", ["{}, not what was said", "", "Edited"])
async def test_an_edited_answer_is_not_one_that_was_broken_off(
    edited: str, sqlite_served: ServedApp
) -> None:
    async with live(sqlite_served, sqlite_served.worker()) as server, sdk(server) as client:
        has = await break_off(sqlite_served, client, "Tell me a story")
        messages = [user("Tell me a story"), assistant(edited.format(has)), user("Go on")]
        await answered(client, sqlite_served.agent, messages)
        sessions = (
            await sqlite_served.process.store.page(sqlite_served.tenant, sqlite_served.agent)
        ).items
    assert len(sessions) == (2 if edited else 1)  # of an empty one, nothing had arrived


@WAYS
async def test_a_turn_that_was_cancelled_is_an_error(
    stream: bool, sqlite_served: ServedApp
) -> None:
    async with live(sqlite_served, sqlite_served.worker()) as server, sdk(server) as client:
        asking, turn = await held(server, client, stream=stream)
        await sqlite_served.turns().cancel(turn.id)
        with pytest.raises(openai.APIError, match="The turn was cancelled") as raised:
            await asking
        assert raised.value.code == "turn_cancelled"
        if isinstance(raised.value, openai.APIStatusError):  # which the SDK would send again
            assert raised.value.response.headers["x-should-retry"] == "false"


async def test_a_server_that_stops_lets_go_of_who_waits(sqlite_served: ServedApp) -> None:
    async with live(sqlite_served, sqlite_served.worker()) as server, sdk(server) as client:
        asking, turn = await held(server, client, stream=False)
        services_of(sqlite_served.app).streams.drain()
        with pytest.raises(openai.UnprocessableEntityError, match=turn.id) as raised:
            await asking
        assert raised.value.code == "answer_interrupted"
        (sqlite_served.process.workspace.folder / "go").touch()
        assert (await sqlite_served.turns().wait(turn.id)).state == "completed"


async def test_a_server_that_stops_ends_a_stream_with_an_error(sqlite_served: ServedApp) -> None:
    async with live(sqlite_served, sqlite_served.worker()) as server, sdk(server) as client:
        asking, turn = await held(server, client, stream=True)
        server.stop.ask()
        with pytest.raises(openai.APIError, match=f"GET /v1/turns/{turn.id}") as raised:
            await asking
        assert raised.value.code == "answer_interrupted"
        (sqlite_served.process.workspace.folder / "go").touch()
        assert (await sqlite_served.turns().wait(turn.id)).state == "completed"


async def test_the_stream_of_a_deleted_session_ends_with_an_error(turn: Turn) -> None:
    async def events() -> AsyncGenerator[LoggedEvent]:
        yield logged(MessageDelta("a", "Once"))[0]
        raise TurnNotFoundError

    async def remember(answer: str | None) -> None:
        assert answer is None

    frames = [frame async for frame in chunks(turn, events(), remember, usage_apart=False)]
    assert b'"code":"turn_not_found"' in frames[-1]


@WAYS
async def test_the_error_of_a_turn_has_its_error_id(stream: bool, sqlite_served: ServedApp) -> None:
    def broken(_: ModelRequest) -> Reply:
        raise ValueError("a secret")

    worker = sqlite_served.worker(provider=ScriptedProvider(rule=broken))
    async with live(sqlite_served, worker) as server, sdk(server) as client:
        say = streamed if stream else answered
        with pytest.raises(openai.APIError, match=r"under `error_id`.*turn_") as raised:
            await say(client, sqlite_served.agent, [user("hi")])
        body: Any = raised.value.body
        turn = await sqlite_served.turns().get(body["error_id"])
    assert turn.state == "failed"
    assert raised.value.code == "internal"
    assert "a secret" not in str(body)


async def test_what_goes_wrong_inside_is_not_told(
    sqlite_served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise ValueError("a secret")

    monkeypatch.setattr("lango.server.openai.sessions.ConversationSubmitter.submit", broken)
    async with live(sqlite_served) as server, sdk(server) as client:
        with pytest.raises(openai.InternalServerError, match="err_") as raised:
            await client.chat.completions.create(model=sqlite_served.agent, messages=[user("hi")])
    assert "a secret" not in raised.value.response.text


@pytest.fixture
async def turn(sqlite_served: ServedApp) -> Turn:
    """Some turn."""
    return await sqlite_served.turns().submit(sqlite_served.agent, "hi", user="ann")


def logged(*events: Event) -> list[LoggedEvent]:
    return [LoggedEvent(n, each.type, each.data(), 0, 0.0) for n, each in enumerate(events, 1)]


def told(turn: Turn, *events: Event) -> tuple[str, DeltaReader]:
    """What a client has at the end of a stream."""
    reading = DeltaReader(turn)
    deltas = [delta for event in logged(*events) for delta in reading.read(event)]
    return "".join(delta.get("content", "") for delta in deltas), reading


async def test_messages_are_told_once_and_apart(turn: Turn) -> None:
    text, reading = told(
        turn,
        MessageDelta("a", "Let me "),
        MessageDelta("a", "see"),
        MessageCompleted("a", "agent", "Let me see."),
        MessageCompleted("b", "agent", ""),
        MessageCompleted("c", "agent", "Here."),
        Completed(),
    )
    assert text == reading.text == "Let me see.\n\nHere."
    assert reading.error is None


async def test_what_was_begun_anew_follows_what_was_told(turn: Turn) -> None:
    text, _ = told(
        turn,
        MessageDelta("a", "Once"),
        MessageReset("a"),
        MessageDelta("a", "Twice"),
        MessageCompleted("a", "agent", "Twice"),
        Completed(),
    )
    assert text == "Once\n\nTwice"


async def test_a_turn_that_waits_for_an_approval_says_where(turn: Turn) -> None:
    approval = Approval("ask_1", "call_1", "pay", {"amount": 7})
    text, reading = told(turn, ApprovalRequired(approval), InputRequired(("ask_1",)))
    assert 'The call pay({"amount":7}) waits for approval.' in text
    assert f'/v1/turns/{turn.id}/approvals {{"call": "ask_1", "approved": true}}' in text
    assert reading.error is None


@pytest.mark.parametrize(
    "end", [[Failed(RateLimitedError("Slow down."))], []], ids=["failed", "none"]
)
async def test_a_turn_without_an_answer_ends_in_an_error(end: list[Event], turn: Turn) -> None:
    async def events() -> AsyncGenerator[LoggedEvent]:
        for event in logged(MessageDelta("a", "Once"), *end):
            yield event

    remembered: list[str | None] = []

    async def remember(answer: str | None) -> None:
        remembered.append(answer)

    frames = [frame async for frame in chunks(turn, events(), remember, usage_apart=False)]
    assert frames[-1].startswith(b'data: {"error":{"message":')
    assert remembered == [None]
    assert (b"Slow down." in frames[-1]) is bool(end)


async def test_an_answer_is_remembered_before_its_parts_and_before_its_end(turn: Turn) -> None:
    remembered: list[str | None] = []

    async def events() -> AsyncGenerator[LoggedEvent]:
        for event in logged(MessageCompleted("a", "agent", "Here."), Completed()):
            yield event

    async def remember(answer: str | None) -> None:
        remembered.append(answer)

    coming = chunks(turn, events(), remember, usage_apart=False)
    known = [(frame, list(remembered)) async for frame in coming]
    assert [each for frame, each in known if b"Here." in frame] == [[None]]
    assert known[0][1] == [None]
    assert known[-1][1] == [None, "Here."]


async def test_conversations_that_begin_alike_are_told_apart_by_their_answers(
    sqlite_served: ServedApp,
) -> None:
    texts = ["One two three four", "Five six seven eight"]
    worker = sqlite_served.worker(provider=ScriptedProvider(texts))
    async with live(sqlite_served, worker) as server, sdk(server) as client:
        cut = [await break_off(sqlite_served, client, "Tell me a story") for _ in texts]
        for beginning in cut:
            conversation = [user("Tell me a story"), assistant(beginning), user("Go on")]
            await answered(client, sqlite_served.agent, conversation)
        found = (
            await sqlite_served.process.store.page(sqlite_served.tenant, sqlite_served.agent)
        ).items
    assert [session.message_count for session in found] == [4, 4]


async def test_text_that_a_dead_worker_did_not_log_belongs_to_its_answer(
    sqlite_served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = logged(
        MessageDelta("a", "Once upon"),
        MessageReset("a"),
        MessageCompleted("a", "agent", "Twice"),
        Completed(),
    )
    real = Turns.events

    async def events(turns: Turns, turn: Turn) -> AsyncGenerator[LoggedEvent]:
        if turn.number > 1:
            async for event in real(turns, turn):
                yield event
        elif turn.ended is not None:
            for event in lost:
                yield event

    async with live(sqlite_served, sqlite_served.worker()) as server, sdk(server) as client:
        await break_off(sqlite_served, client, "Tell me a story")
        [session] = (
            await sqlite_served.process.store.page(sqlite_served.tenant, sqlite_served.agent)
        ).items
        of_session: dict[str, Any] = {"user": session.user_id, "session": session.id}
        [told] = await sqlite_served.turns().of_session(session.app_name, **of_session)
        await sqlite_served.turns().wait(told.id)
        monkeypatch.setattr(Turns, "events", events)
        conversation = [user("Tell me a story"), assistant("Once upon a time"), user("Go on")]
        assert await answered(client, sqlite_served.agent, conversation) == "You said: Go on"
        turns = await sqlite_served.turns().of_session(session.app_name, **of_session)
    assert [turn.input["text"] for turn in turns] == ["Go on", "Tell me a story"]
