"""A run is a durable turn: it survives its client, its worker and its server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from faults.turns.processes import workers
from faults.turns.workspace import Workspace
from lango.core.turns.events import Completed, Event, MessageCompleted, MessageDelta, Started
from lango.core.turns.positions import Position
from lango.store.turns.log import LoggedEvent
from lango.store.turns.rows import Turn
from lango.turns.adk_events import AdkEvents
from lango.turns.service import Turns
from tests.server.adk import agents
from tests.server.adk.twins import Caller, finals, frames_in, partial_text, worker_of
from tests.server.served_apps import ServedApp, live

WORDS = " ".join(f"word{number}" for number in range(40))
ANSWER = f"You said: {WORDS}"


async def begin(caller: Caller) -> None:
    assert (await caller.create()).status_code == 200


def texts(session: dict[str, Any]) -> list[str]:
    """The texts of a session."""
    events = [event for event in session["events"] if event.get("content")]
    return ["".join(part["text"] for part in event["content"]["parts"]) for event in events]


async def test_a_stream_goes_on_when_its_worker_dies(
    adk_served: ServedApp, workspace: Workspace
) -> None:
    with ExitStack() as running:
        (doomed,) = running.enter_context(workers(workspace, delay=0.05))
        async with live(adk_served) as served, served.client(root="/adk/") as web:
            caller, text = Caller(web, workspace.app), ""
            await begin(caller)
            body = caller.body(WORDS, streaming=True)
            async with web.stream("POST", "run_sse", json=body) as response:
                async for line in response.aiter_lines():
                    text += f"{line}\n"
                    if "word5" in text and doomed.is_alive:
                        await asyncio.to_thread(doomed.kill)
                        await asyncio.to_thread(running.enter_context, workers(workspace))
            session = await caller.get()
    frames = frames_in(text)
    assert partial_text(frames) == ANSWER
    (final,) = finals(frames)
    assert final["content"]["parts"] == [{"text": ANSWER}]
    assert session["events"][1:] == [final]
    assert texts(session) == [WORDS, ANSWER]


async def test_a_turn_goes_on_when_its_client_disconnects(adk_served: ServedApp) -> None:
    worker = adk_served.worker(delay=0.01)
    async with live(adk_served, worker) as served, served.client(root="/adk/") as web:
        caller = Caller(web, adk_served.agent)
        await begin(caller)
        body = caller.body(WORDS, streaming=True)
        async with web.stream("POST", "run_sse", json=body) as response:
            turn = response.headers["lango-turn"]
            async for line in response.aiter_lines():
                if '"partial":true' in line:
                    break
        await adk_served.turns().wait(turn)
        assert texts(await caller.get()) == [WORDS, ANSWER]


async def test_messages_of_a_busy_session_are_queued(adk_served: ServedApp) -> None:
    worker = adk_served.worker(delay=0.01)
    async with live(adk_served, worker) as served, served.client(root="/adk/") as web:
        caller = Caller(web, adk_served.agent)
        await begin(caller)
        answers = await asyncio.gather(*(caller.run(f"Message {n}") for n in range(3)))
        said = {answer.json()[0]["content"]["parts"][0]["text"] for answer in answers}
        assert said == {f"You said: Message {n}" for n in range(3)}
        assert len(texts(await caller.get())) == 6


async def test_a_stopping_server_says_that_the_turn_goes_on(adk_served: ServedApp) -> None:
    async with live(adk_served) as served, served.client(root="/adk/") as web:
        caller, text = Caller(web, adk_served.agent), ""
        await begin(caller)
        async with web.stream("POST", "run_sse", json=caller.body("Hi")) as response:
            asyncio.get_running_loop().call_later(0.2, served.stop.ask)
            async for line in response.aiter_lines():
                text += f"{line}\n"
        (frame,) = frames_in(text)
        assert "The turn continues" in frame["error"]


async def test_a_request_is_repeated_under_its_key(adk_served: ServedApp) -> None:
    async with (
        live(adk_served, adk_served.worker()) as served,
        served.client(root="/adk/", idempotency_key="k1") as web,
    ):
        caller = Caller(web, adk_served.agent)
        await begin(caller)
        first, again = [await caller.run("Once") for _ in range(2)]
        assert first.json() == again.json()
        assert len((await caller.get())["events"]) == 2
        assert (await caller.run("Twice")).status_code == 409


async def test_a_repeated_request_has_no_events_of_later_turns(adk_served: ServedApp) -> None:
    async with (
        live(adk_served, worker_of(adk_served, agents.paying)) as served,
        served.client(root="/adk/") as web,
    ):
        caller = Caller(web, adk_served.agent)
        await begin(caller)
        body, key = caller.body('call pay {"amount": 3}'), {"idempotency-key": "k1"}
        first = await web.post("run", json=body, headers=key)
        (call,) = [e for e in first.json() if e.get("longRunningToolIds")][-1]["longRunningToolIds"]
        name = "adk_request_confirmation"
        part = {"functionResponse": {"id": call, "name": name, "response": {"confirmed": True}}}
        assert (await caller.run(part)).status_code == 200
        again = await web.post("run", json=body, headers=key)
        assert again.json() == first.json()


async def test_a_streamed_change_of_state_is_that_of_the_session(adk_served: ServedApp) -> None:
    async with (
        live(adk_served, worker_of(adk_served, lambda: agents.Stepwise(name="stepwise"))) as served,
        served.client(root="/adk/") as web,
    ):
        caller = Caller(web, adk_served.agent)
        await begin(caller)
        frames = await caller.stream("Hello")
        assert frames == (await caller.get())["events"][1:]
        assert [frame["actions"]["stateDelta"] for frame in frames] == [{}, {"step": 1}, {}]
        assert {frame["author"] for frame in frames} == {"stepwise"}


async def test_a_stream_says_that_its_session_was_deleted(adk_sqlite_served: ServedApp) -> None:
    async with (
        live(adk_sqlite_served, adk_sqlite_served.worker()) as served,
        served.client(root="/adk/") as web,
    ):
        caller, text = Caller(web, adk_sqlite_served.agent), ""
        await begin(caller)
        body = caller.body('call hold {"name": "never"}', streaming=True)
        async with web.stream("POST", "run_sse", json=body) as response:
            await adk_sqlite_served.process.workspace.effects.wait(
                lambda words: "held never" in words
            )
            await web.delete(f"{caller.sessions}/s1")
            async for line in response.aiter_lines():
                text += f"{line}\n"
        assert "The session was deleted" in frames_in(text)[-1]["error"]


async def test_thoughts_of_a_model_that_does_not_stream_have_their_author(
    adk_sqlite_served: ServedApp,
) -> None:
    async with (
        live(adk_sqlite_served, worker_of(adk_sqlite_served, agents.thinking)) as served,
        served.client(root="/adk/") as web,
    ):
        caller = Caller(web, adk_sqlite_served.agent)
        await begin(caller)
        frames = await caller.stream("Hello", streaming=True)
        assert {frame["author"] for frame in frames} == {"thinking"}
        assert "thinking aloud" in partial_text(frames)


async def test_the_text_of_a_foreign_exception_is_not_shown(adk_sqlite_served: ServedApp) -> None:
    async with (
        live(adk_sqlite_served, worker_of(adk_sqlite_served, agents.raising)) as served,
        served.client(root="/adk/") as web,
    ):
        caller = Caller(web, adk_sqlite_served.agent)
        await begin(caller)
        frames = await caller.stream("Hello")
        failed = await caller.run("Hello")
        shown = f"{frames} {failed.text} {await caller.get()}"
    assert "hush" not in shown
    assert frames[-1]["error"].startswith("InternalError: Something went wrong")
    assert failed.status_code == 500


class _FixedTurns(Turns):
    """Turns whose log has these events."""

    def __init__(self, served: ServedApp, *events: Event) -> None:
        super().__init__(served.process.store, served.process.engine, tenant=served.tenant)
        self._log_events = events

    async def events(
        self, turn: str | Turn, *, after: int | Position = 0
    ) -> AsyncGenerator[LoggedEvent]:
        del turn, after
        for number, event in enumerate(self._log_events, 1):
            yield LoggedEvent(number, event.type, event.data(), 0, 0.0)


async def shown(served: ServedApp, *events: Event) -> list[str]:
    """The texts of the partial events of a log."""
    turn = await served.turns().submit(served.agent, "hi", user="ann")
    read = AdkEvents(served.process.store, _FixedTurns(served, *events), turn, app_state=True)
    return [partial_text([event]) async for event in read.read(partials=True)]


async def test_text_of_a_lost_attempt_is_not_sent_again(sqlite_served: ServedApp) -> None:
    lost = Started(), MessageDelta("a", "One two", "agent"), Started(2)
    end = MessageCompleted("b", "agent", "One two three"), Completed()
    deltas = (
        MessageDelta("b", "One", "agent"),
        MessageDelta("b", " two th"),
        MessageDelta("b", "ree"),
    )
    assert await shown(sqlite_served, *lost, *deltas, *end) == ["One two", " th", "ree"]


@pytest.mark.parametrize("second", ["", "One", "One two", "Uno"])
async def test_text_is_not_sent_again_after_two_deaths(
    sqlite_served: ServedApp, second: str
) -> None:
    lost = Started(), MessageDelta("a", "One two", "agent"), Started(2)
    again = [MessageDelta("b", second, "agent")] if second else []
    last = Started(3), MessageDelta("c", "One two three", "agent")
    end = MessageCompleted("c", "agent", "One two three"), Completed()
    assert await shown(sqlite_served, *lost, *again, *last, *end) == ["One two", " three"]


async def test_parallel_agents_are_told_apart_after_a_death(sqlite_served: ServedApp) -> None:
    lost = Started(), MessageDelta("a1", "Left", "l"), MessageDelta("b1", "Right", "r")
    left = MessageDelta("a2", "Left one", "l"), MessageCompleted("a2", "l", "Left one")
    right = MessageDelta("b2", "Right two", "r"), MessageCompleted("b2", "r", "Right two")
    texts = await shown(sqlite_served, *lost, Started(2), *left, *right, Completed())
    assert texts == ["Left", "Right", " one", " two"]


async def test_an_answer_that_differs_comes_as_a_whole(sqlite_served: ServedApp) -> None:
    lost = Started(), MessageDelta("a", "One two", "agent"), Started(2)
    other = MessageDelta("b", "One more", "agent"), MessageCompleted("b", "agent", "One more")
    later = MessageDelta("c", "Next", "agent"), MessageCompleted("c", "agent", "Next"), Completed()
    assert await shown(sqlite_served, *lost, *other, *later) == ["One two", "Next"]


async def test_data_in_a_message_reaches_the_model(adk_served: ServedApp) -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgpwaXhlbHM="}}
    async with (
        live(adk_served, adk_served.worker()) as served,
        served.client(root="/adk/") as web,
    ):
        caller = Caller(web, adk_served.agent)
        await begin(caller)
        answer = await caller.run("Look", picture, "and say")
        assert answer.status_code == 200, answer.text
        (message, _) = (await caller.get())["events"]
        assert message["content"]["parts"] == [{"text": "Look"}, picture, {"text": "and say"}]
        wrong = {"inlineData": {"mimeType": "image/jpeg", "data": picture["inlineData"]["data"]}}
        refused: httpx.Response = await caller.run(wrong)
        assert refused.status_code == 415
