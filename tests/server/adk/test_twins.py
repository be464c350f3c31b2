"""ADK's API behind lango gives what ADK's own server gives, apart from ids and times."""

from itertools import cycle
from typing import Any

import httpx
import pytest

from tests.server.adk import agents
from tests.server.adk.twins import (
    Caller,
    Do,
    MakeAgent,
    Twins,
    alike,
    finals,
    partial_text,
    twins,
)
from tests.server.served_apps import ServedApp

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow"),
    pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*CredentialService"),
    pytest.mark.filterwarnings("ignore:Please use create_session instead"),
]

TALKS: dict[MakeAgent, tuple[str, ...]] = {
    agents.talker: (
        "Good morning",
        'call add {"a": 2, "b": 3}',
        'call add {"a": 1, "b": 1} and call add {"a": 2, "b": 2}',
        'call learn {"fact": "the sky is blue"}',
        'call draw {"name": "cat.png"}',
        'call draw {"name": "cat.png"}',
    ),
    agents.with_callbacks: ("Hello", "Once more", "And again"),
    agents.transferring: ("Is the shop open?", "And now?"),
    agents.in_sequence: ("Hello both", "Once more"),
}
MODES: tuple[dict[str, Any] | None, ...] = ({"streaming": True}, {}, None)


@pytest.mark.parametrize("make", TALKS)
async def test_a_conversation_is_the_same(adk_served: ServedApp, make: MakeAgent) -> None:
    async with twins(adk_served, make) as pair:
        for message, mode in zip(TALKS[make], cycle(MODES), strict=False):
            if mode is None:
                await same(pair, running(message))
            else:
                await same_stream(pair, message, **mode)
        await same(pair, Caller.get)


async def test_confirmations_and_results_are_the_same(adk_served: ServedApp) -> None:
    async with twins(adk_served, agents.paying) as pair:
        question = await same_stream(pair, 'call pay {"amount": 3}', streaming=True)
        await answer(pair, question, {"confirmed": True}, streaming=True)
        question = await same_stream(pair, 'call pay {"amount": 4}')
        await answer(pair, question, {"confirmed": False})
        question = await same_stream(pair, 'call errand {"name": "Tom"}')
        await answer(pair, question, {"status": "done"})
        await same(pair, Caller.get)


async def test_an_answer_may_set_state(adk_served: ServedApp) -> None:
    async with twins(adk_served, agents.paying) as pair:
        question = await same_stream(pair, 'call pay {"amount": 3}')
        await answer(pair, question, {"confirmed": True}, stateDelta={"polite": True})
        await same(pair, Caller.get)


async def test_state_is_the_same(adk_served: ServedApp) -> None:
    async with twins(adk_served, agents.talker) as pair:
        state = {"colour": "blue", "user:name": "Ann", "temp:no": 1}
        await same(pair, lambda caller: caller.run("Hello", stateDelta=state))
        change = {"stateDelta": {"colour": None, "user:age": 7}}
        await same(pair, lambda c: c.web.patch(f"{c.sessions}/{c.session}", json=change))
        await same(pair, Caller.get)
        made = {"sessionId": "s2", "state": {"colour": "red", "user:name": "Eve"}}
        await same(pair, lambda c: c.web.post(c.sessions, json=made))
        await same(pair, lambda c: c.web.post(f"{c.sessions}/s3", json={"colour": "green"}))
        await same(pair, lambda c: c.web.post(f"{c.sessions}/s4"))
        adk, ours = [(await c.web.get(c.sessions)).json() for c in (pair.adk, pair.ours)]
        assert sorted(map(str, alike(ours))) == sorted(map(str, alike(adk)))


async def test_artifacts_are_the_same(adk_served: ServedApp) -> None:
    async with twins(adk_served, agents.talker) as pair:
        await same_stream(pair, 'call draw {"name": "cat.png"}')
        note = {
            "filename": "a/note.txt",
            "artifact": {"text": "Hi"},
            "customMetadata": {"by": "me"},
        }
        artifacts = "{c.sessions}/{c.session}/artifacts"
        await same(pair, lambda c: c.web.post(artifacts.format(c=c), json=note))
        for path in (
            "",
            "/cat.png",
            "/cat.png?version=0",
            "/cat.png?version=9",
            "/cat.png/versions",
            "/cat.png/versions/0",
            "/cat.png/versions/latest",
            "/cat.png/versions/none",
            "/cat.png/versions/metadata",
            "/cat.png/versions/0/metadata",
            "/cat.png/versions/7/metadata",
            "/a/note.txt",
            "/missing.txt",
        ):
            await same(pair, getting(artifacts + path))
        await same(pair, lambda c: c.web.delete(artifacts.format(c=c) + "/a/note.txt"))
        await same(pair, getting(artifacts))


async def test_errors_are_the_same(adk_served: ServedApp) -> None:
    async with twins(adk_served, agents.failing) as pair:
        adk, ours = await pair.both(lambda caller: caller.stream("Hello", streaming=True))
        assert partial_text(ours) == partial_text(adk)
        assert [frame for frame in ours if "error" in frame] == [ours[-1]]
        assert (
            ours[-1]["error"]
            == adk[-1]["error"]
            == "AuthenticationError: The key is wrong. (scripted demo)"
        )
        assert ours[-1]["error_details"].keys() == adk[-1]["error_details"].keys()
        shown = [frame for frame in ours if frame.get("errorCode")]
        assert shown == [frame for frame in adk if frame.get("errorCode")] != []
        failed = await pair.ours.run("Hello")
        assert (failed.status_code, failed.json()) == (
            500,
            {"detail": "AuthenticationError: The key is wrong. (scripted demo)"},
        )
        await same(pair, lambda c: c.create())
        await same(pair, lambda c: c.web.get(f"{c.sessions}/nowhere"))
        await same(pair, lambda c: c.web.delete(f"{c.sessions}/nowhere"))
        await same(pair, lambda c: c.web.patch(f"{c.sessions}/nowhere", json={"stateDelta": {}}))
        await same(pair, lambda c: c.web.post("run_sse", json=c.body("Hi", sessionId="nowhere")))
        await same(
            pair, lambda c: c.web.post(c.sessions, json={"options": {"user_id": "x"}}), depth=1
        )
        for change in ({"newMessage": 3}, {"userId": None}, {"streaming": "perhaps"}):
            await same(pair, posting("run_sse", pair.ours.body("Hi") | change), depth=1)
        bodies: list[Any] = [{}, [], "Hi", None]
        for body in bodies:
            await same(pair, posting("run_sse", body), depth=1)
        await same(pair, lambda c: c.run("Hi", appName="nowhere"), depth=1)


def running(message: str) -> Do:
    return lambda caller: caller.run(message)


def getting(path: str) -> Do:
    return lambda caller: caller.web.get(path.format(c=caller))


def posting(path: str, body: Any) -> Do:
    return lambda caller: caller.web.post(path, json=body)


async def same(pair: Twins, do: Do, *, depth: int = 0) -> Any:
    """Check that both servers give the same; with `depth` 1, the same status and field names."""
    adk, ours = await do(pair.adk), await do(pair.ours)
    if depth and isinstance(ours, httpx.Response) and isinstance(adk, httpx.Response):
        assert (ours.status_code, ours.json().keys()) == (adk.status_code, adk.json().keys())
    else:
        assert alike(ours) == alike(adk)
    return adk, ours


async def same_stream(pair: Twins, *parts: Any, **more: Any) -> Any:
    """Check that a message gives the same events; the partial ones may be cut elsewhere."""
    adk, ours = await pair.adk.stream(*parts, **more), await pair.ours.stream(*parts, **more)
    check_streams(adk, ours)
    return adk, ours


def check_streams(adk: list[dict[str, Any]], ours: list[dict[str, Any]]) -> None:
    assert alike(finals(ours)) == alike(finals(adk))
    assert partial_text(ours) == partial_text(adk)


async def answer(pair: Twins, question: Any, response: Any, **more: Any) -> None:
    """Answer the call that each server waits for."""
    streams: list[list[dict[str, Any]]] = []
    for caller, frames in zip((pair.adk, pair.ours), question, strict=True):
        (call,) = [frame for frame in frames if frame.get("longRunningToolIds")][-1:]
        (waiting,) = call["longRunningToolIds"]
        (name,) = [
            part["functionCall"]["name"]
            for part in call["content"]["parts"]
            if part.get("functionCall", {}).get("id") == waiting
        ]
        part = {"functionResponse": {"id": waiting, "name": name, "response": response}}
        streams.append(await caller.stream(part, **more))
    check_streams(*streams)
