"""GET /v1/sessions/{id}/context: what a model call saw, held against what it was really sent."""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from lango.insight.context import TEXT_ROOM
from lango.store.model_calls import ModelCallStore
from lango.store.sessions.entries import SessionKey
from tests.server.routes.long_talks import BUDGET, INSTRUCTION, LongTalk, long_talk
from tests.server.served_apps import ServedApp

NO_CALL = "mc_00000000000000000000000000000000"


@pytest_asyncio.fixture
async def talk(served: ServedApp) -> AsyncIterator[LongTalk]:
    """A session of ann's that has one more turn than fits."""
    session = await served.session()
    key = SessionKey(served.tenant, served.agent, "ann", session)
    async with long_talk(served.process.store, key) as opened:
        yield opened


async def shown(served: ServedApp, talk: LongTalk, **query: Any) -> dict[str, Any]:
    async with served.client() as client:
        answer = await client.get(
            f"/v1/sessions/{talk.key.session_id}/context", params=query or None
        )
    assert answer.status_code == 200, answer.text
    return answer.json()


def numbers(view: dict[str, Any]) -> list[int]:
    return [one["number"] for one in view["sections"] if one["number"] is not None]


async def cut_numbers(talk: LongTalk, view: dict[str, Any]) -> list[int]:
    """The stored messages within the ranges that a view says were cut."""
    stored = [row.seq for row in await talk.rows()]
    ranges = [(cut["first"], cut["last"]) for cut in view["cut"]]
    return [seq for seq in stored if any(first <= seq <= last for first, last in ranges)]


async def test_before_the_first_call(served: ServedApp, talk: LongTalk) -> None:
    result = await shown(served, talk)
    assert result["call"] is None
    assert result["earlier"] == []
    assert result["preview"]["sections"] == result["preview"]["cut"] == []


async def test_names_exactly_what_the_model_did_not_get(served: ServedApp, talk: LongTalk) -> None:
    await talk.fill()
    view = (await shown(served, talk))["call"]
    last_sent = numbers(view)[-1]
    unsent = await talk.not_in_request(upto=last_sent)
    assert unsent, "the talk is too short for this test"
    assert await cut_numbers(talk, view) == unsent
    assert {cut["why"] for cut in view["cut"]} == {"budget"}
    assert sum(cut["messages"] for cut in view["cut"]) == len(unsent)
    texts = [one["text"] for one in view["sections"] if one["number"] is not None]
    assert texts == [message.content for message in talk.request()]
    assert (view["messages_known"], view["messages_sent"]) == ("exact", len(texts))


async def test_the_parts_and_their_tokens(served: ServedApp, talk: LongTalk) -> None:
    await talk.fill(3)
    await talk.say('call add {"a": 1, "b": 2}')
    view = (await shown(served, talk))["call"]
    kinds = [one["kind"] for one in view["sections"]]
    assert kinds == ["system", "tools", *["history"] * kinds.count("history"), *["turn"] * 3]
    system, tools = view["sections"][:2]
    assert system["text"].startswith(INSTRUCTION)
    assert tools["tools"] == ["add"]
    assert "Add two numbers." in tools["text"]
    question, called, answered = view["sections"][-3:]
    assert (question["role"], called["role"], answered["role"]) == ("user", "assistant", "tool")
    assert called["tools"] == answered["tools"] == ["add"]
    attempt = view["attempt"]
    assert sum(one["tokens"] for one in view["sections"]) == attempt["estimated"]
    assert view["rest"] == 0
    assert attempt["usage"]["input"] > 0
    assert (attempt["provider"], attempt["model"]) == ("scripted", "demo")
    assert attempt["started"] <= attempt["first_byte"] <= attempt["ended"]
    assert view["budget"] <= BUDGET
    assert view["agent"] == "root"


async def test_a_past_call_is_shown_as_it_was(served: ServedApp, talk: LongTalk) -> None:
    await talk.fill(1)
    then = await shown(served, talk)
    await talk.fill()
    now = await shown(served, talk)
    assert now["call"]["call"] != then["call"]["call"]
    assert then["call"]["call"] == now["earlier"][-1]["call"]
    past = await shown(served, talk, call=then["call"]["call"])
    assert past == {"call": then["call"], "preview": None, "earlier": []}
    assert numbers(past["call"]) == [1]


async def test_the_preview_is_what_the_next_call_gets(served: ServedApp, talk: LongTalk) -> None:
    for turns in (1, 1, 1, 2, 4):
        await talk.fill(turns)
        preview = (await shown(served, talk))["preview"]
        await talk.say("ok")
        view = (await shown(served, talk))["call"]
        history = [one for one in view["sections"] if one["kind"] == "history"]
        assert preview["sections"] == history
        assert preview["cut"] == view["cut"]
        assert preview["tokens"] == sum(one["tokens"] for one in history)
    assert preview["cut"], "the talk is too short for this test"


async def test_a_text_is_shown_as_far_as_asked(served: ServedApp, talk: LongTalk) -> None:
    await talk.say("x" * 300)
    for room in (0, 10, TEXT_ROOM):
        view = (await shown(served, talk, characters=room))["call"]
        section = view["sections"][-1]
        assert (section["text"], section["characters"]) == ("x" * min(room, 300), 300)


async def test_a_call_of_another_is_missing(served: ServedApp, talk: LongTalk) -> None:
    await talk.say("hello")
    call = (await shown(served, talk))["call"]["call"]
    answers: list[bytes] = []
    for name in ("ann", "bob", "other-ann"):
        own = await served.session(name)
        async with served.client(name) as client:
            for wanted in (call, NO_CALL, "no call", "\x00"):
                answer = await client.get(f"/v1/sessions/{own}/context", params={"call": wanted})
                assert answer.status_code == 404
                answers.append(answer.content)
    assert len(set(answers)) == 1
    assert b"urn:lango:error:model-call-not-found" in answers[0]


async def test_a_call_in_anothers_session_is_a_missing_session(
    served: ServedApp, talk: LongTalk
) -> None:
    await talk.say("hello")
    call = (await shown(served, talk))["call"]["call"]
    path = f"/v1/sessions/{talk.key.session_id}/context"
    for name in ("bob", "other-ann"):
        async with served.client(name) as client:
            answers = [
                await client.get(path, params={"call": wanted}) for wanted in (call, NO_CALL)
            ]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert answers[0].content == answers[1].content
        assert b"session-not-found" in answers[0].content


async def test_a_call_is_its_own_sessions_in_the_store_too(talk: LongTalk) -> None:
    await talk.say("hello")
    (stored,) = await ModelCallStore(talk.store.database).of_session(talk.key)
    calls = ModelCallStore(talk.store.database)
    assert await calls.attempts(talk.key, stored.call.call) == [stored]
    other = SessionKey(talk.key.tenant, talk.key.app_name, "bob", talk.key.session_id)
    assert await calls.attempts(other, stored.call.call) == []
