"""Turns over HTTP: hand in, look, cancel, answer, and what a busy session says."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from faults.server.sse import Frame, frames
from tests.server.served_apps import ServedApp

STREAM = {"Accept": "text/event-stream"}
ENDS = {"completed", "failed", "cancelled", "input_required"}


async def read(response: httpx.Response) -> list[Frame]:
    assert response.status_code == 200, response.text
    return [frame async for frame in frames(response)]


async def test_a_turn_is_accepted_and_ends(served: ServedApp) -> None:
    session = await served.session()
    async with served.client() as client:
        answer = await client.post(f"/v1/sessions/{session}/turns", json={"message": "hi"})
        assert answer.status_code == 202
        turn = answer.json()
        assert answer.headers["location"] == f"/v1/turns/{turn['id']}"
        assert (turn["session"], turn["state"], turn["message"]) == (session, "queued", "hi")
        async with served.worker():
            await served.turns().wait(turn["id"])
        ended = (await client.get(answer.headers["location"])).json()
    assert (ended["state"], ended["attempts"], ended["session"]) == ("completed", 1, session)
    assert ended["usage"]["input"] > 0


async def test_a_completed_turn_has_the_text_of_its_last_message(served: ServedApp) -> None:
    session = await served.session()
    async with served.client() as client:
        first = await served.turn(session, 'call step {"name": "a"}')
        assert (await client.get(f"/v1/turns/{first}")).json()["text"] is None
        async with served.worker():
            await served.turns().wait(first)
            second = await served.turn(session, "hello")
            await served.turns().wait(second)
        texts = [(await client.get(f"/v1/turns/{one}")).json()["text"] for one in (first, second)]
        listed = (await client.get("/v1/turns")).json()["turns"]
    assert texts == ['I asked: step gave {"result":"done"}.', "You said: hello"]
    assert all("text" not in each for each in listed)


async def test_events_come_with_the_answer_when_asked_for(
    served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No text comes in parts before the log.
    monkeypatch.setattr("lango.turns.log.writer.STREAM_FOR", 0.0)
    session = await served.session()
    async with served.client() as client, served.worker():
        path = f"/v1/sessions/{session}/turns"
        body = {"message": 'call step {"name": "a"}'}
        answer = await client.post(path, json=body, headers=STREAM)
        result = await read(answer)
        turn = answer.headers["location"].rpartition("/")[2]
        types = [frame.event for frame in result]
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        assert answer.headers["x-accel-buffering"] == "no"
        assert types[0] == "accepted"
        assert [each for each in types if each in ENDS] == [types[-1]] == ["completed"]
        assert {frame.data["turn"] for frame in result} == {turn}
        assert "thought.delta" not in types
        again = await client.get(f"/v1/turns/{turn}/events")
        assert again.text == answer.text


async def test_thoughts_come_when_wished_for(served: ServedApp) -> None:
    session = await served.session()
    async with served.client() as client, served.worker():
        turn = await served.turn(session, 'call step {"name": "a"}')
        await served.turns().wait(turn)
        path = f"/v1/turns/{turn}/events"
        result = await read(await client.get(path, params={"thoughts": "true"}))
        without = await read(await client.get(path))
    assert [frame.id for frame in result] == list(range(1, len(result) + 1))
    assert without == [frame for frame in result if frame.event != "thought.delta"]
    assert len(without) < len(result)


async def test_a_reader_goes_on_from_any_event(served: ServedApp) -> None:
    session = await served.session()
    async with served.client() as client, served.worker():
        turn = await served.turn(session, 'call step {"name": "a"}')
        await served.turns().wait(turn)
        path = f"/v1/turns/{turn}/events"
        whole = await read(await client.get(path))
        for seen in whole[:-1]:
            rest = whole[whole.index(seen) + 1 :]
            header = {"Last-Event-ID": str(seen.id)}
            assert await read(await client.get(path, headers=header)) == rest
            assert await read(await client.get(path, params={"after": seen.id})) == rest
        over = await client.get(path, headers={"Last-Event-ID": str(whole[-1].id)})
    assert (over.status_code, over.content) == (204, b"")


@pytest.mark.parametrize("number", ["x", "-1", "1.5", str(1 << 70)])
async def test_a_number_that_is_none_is_refused(number: str, sqlite_served: ServedApp) -> None:
    turn = await sqlite_served.turn(await sqlite_served.session(), "hi")
    async with sqlite_served.client() as client:
        path = f"/v1/turns/{turn}/events"
        for wrong in ({"headers": {"Last-Event-ID": number}}, {"params": {"after": number}}):
            assert (await client.get(path, **wrong)).status_code == 422  # pyright: ignore[reportArgumentType]


async def test_a_key_gives_one_turn(served: ServedApp) -> None:
    session = await served.session()
    path = f"/v1/sessions/{session}/turns"
    async with served.client(idempotency_key="k") as client:
        first = await client.post(path, json={"message": "hi"})
        again = await client.post(path, json={"message": "hi"})
        assert (again.status_code, again.content) == (202, first.content)
        async with served.worker():
            result = await read(await client.post(path, json={"message": "hi"}, headers=STREAM))
        assert result[0].event == "accepted"
        assert result[0].data["turn"] == first.json()["id"]
        other = await client.post(path, json={"message": "ho"})
        assert (other.status_code, other.json()["type"]) == (409, "urn:lango:error:turn-conflict")
        assert len((await client.get(path)).json()["turns"]) == 1


async def test_a_busy_session_rejects_when_asked_to(served: ServedApp) -> None:
    session = await served.session()
    await served.turn(session, "one")
    async with served.client() as client:
        for headers in ({}, STREAM):
            body = {"message": "two", "busy": "reject"}
            answer = await client.post(f"/v1/sessions/{session}/turns", json=body, headers=headers)
            assert (answer.status_code, answer.headers["retry-after"]) == (409, "1")
            assert answer.json()["type"] == "urn:lango:error:session-busy"
            assert answer.headers["content-type"] == "application/problem+json"
        await served.turn(session, "three", busy="enqueue")


async def test_interrupt_stops_what_runs(served: ServedApp) -> None:
    session = await served.session()
    async with served.worker():
        running = await served.turn(session, 'call hold {"name": "never"}')
        await served.process.workspace.effects.wait(lambda effects: "held never" in effects)
        urgent = await served.turn(session, "now", busy="interrupt")
        assert (await served.turns().wait(running)).state == "cancelled"
        assert (await served.turns().wait(urgent)).state == "completed"


async def test_a_scheduled_turn_waits_for_its_time(served: ServedApp) -> None:
    session = await served.session()
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    turn = await served.turn(session, "later", run_at=later)
    async with served.client() as client:
        found = (await client.get(f"/v1/turns/{turn}")).json()
    assert found["state"] == "scheduled"
    assert datetime.fromisoformat(found["run_at"]) == datetime.fromisoformat(later)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"message": ""},
        {"message": 1},
        {"message": "x", "busy": "never"},
        {"message": "x", "run_at": "2026-01-01T00:00:00"},
        {"message": "x", "run_at": "9999-12-31T23:59:59-14:00"},
        {"message": "x", "history": []},
        {"message": "\ud800"},
        [],
    ],
    ids=str,
)
async def test_what_is_no_turn_is_refused(body: Any, sqlite_served: ServedApp) -> None:
    session = await sqlite_served.session()
    async with sqlite_served.client() as client:
        answer = await client.post(
            f"/v1/sessions/{session}/turns",
            content=json.dumps(body),  # httpx would not write a lone surrogate
            headers={"Content-Type": "application/json"},
        )
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:lango:error:invalid-request")


async def test_a_queued_turn_is_cancelled_at_once(served: ServedApp) -> None:
    turn = await served.turn(await served.session(), "never")
    async with served.client() as client:
        answer = await client.post(f"/v1/turns/{turn}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
        events_read = await read(await client.get(f"/v1/turns/{turn}/events"))
        assert [frame.event for frame in events_read] == ["accepted", "cancelled"]
        again = await client.post(f"/v1/turns/{turn}/cancel")
        assert again.json() == answer.json()


async def test_a_running_turn_is_cancelled(served: ServedApp) -> None:
    async with served.client() as client, served.worker():
        turn = await served.turn(await served.session(), 'call hold {"name": "never"}')
        await served.process.workspace.effects.wait(lambda effects: "held never" in effects)
        answer = await client.post(f"/v1/turns/{turn}/cancel")
        assert (answer.status_code, answer.json()["cancel_requested"]) == (200, True)
        assert (await served.turns().wait(turn)).state == "cancelled"


async def _asked(served: ServedApp, client: httpx.AsyncClient) -> tuple[str, Frame]:
    turn = await served.turn(await served.session(), 'call pay {"amount": 3}')
    events_read = await read(await client.get(f"/v1/turns/{turn}/events"))
    assert events_read[-1].event == "input_required"
    return turn, next(frame for frame in events_read if frame.event == "approval.required")


@pytest.mark.parametrize("field", ["approval", "call"])
async def test_an_approval_goes_on_with_the_turn(field: str, served: ServedApp) -> None:
    async with served.client() as client, served.worker():
        turn, waiting = await _asked(served, client)
        body = {"call": waiting.data[field], "approved": True}
        path = f"/v1/turns/{turn}/approvals"
        answer = await client.post(path, json=body, headers=STREAM | {"Idempotency-Key": "k"})
        result = await read(answer)
        assert (result[0].event, result[-1].event) == ("accepted", "completed")
        again = await client.post(path, json=body, headers={"Idempotency-Key": "k"})
        assert answer.headers["location"] == again.headers["location"]
        assert (again.status_code, again.json()["answers"]) == (202, waiting.data["approval"])
        conflict = await client.post(path, json=body)
        assert (conflict.status_code, conflict.json()["type"]) == (
            409,
            "urn:lango:error:turn-conflict",
        )
        asking = (await client.get(f"/v1/turns/{turn}")).json()
        assert (asking["state"], asking["text"]) == ("answered", None)
        ended = (await client.get(answer.headers["location"])).json()
        assert ended["text"] == 'I asked: pay gave {"result":"paid 3"}.'
    assert served.process.workspace.effects.words() == ["paid 3"]


async def test_an_approval_of_an_unknown_call_is_not_found(served: ServedApp) -> None:
    async with served.client() as client, served.worker():
        turn, _ = await _asked(served, client)
        body = {"call": "other", "approved": True}
        answer = await client.post(f"/v1/turns/{turn}/approvals", json=body)
    assert (answer.status_code, answer.json()["type"]) == (
        404,
        "urn:lango:error:approval-not-found",
    )


async def _pending(served: ServedApp, client: httpx.AsyncClient) -> tuple[str, str]:
    """A turn that waits for the result of a call, and the call."""
    turn = await served.turn(await served.session(), 'call errand {"name": "a"}')
    events_read = await read(await client.get(f"/v1/turns/{turn}/events"))
    assert [frame.event for frame in events_read][-2:] == ["message.completed", "input_required"]
    return turn, events_read[-1].data["calls"][0]


async def test_the_later_result_of_a_call_goes_on_with_the_turn(served: ServedApp) -> None:
    async with served.client() as client, served.worker():
        turn, call = await _pending(served, client)
        assert (await client.get(f"/v1/turns/{turn}")).json()["waits_for"] == [call]
        path, body = f"/v1/turns/{turn}/results", {"call": call, "result": {"status": "done"}}
        answer = await client.post(path, json=body, headers=STREAM)
        result = await read(answer)
        assert (result[0].event, result[-1].event) == ("accepted", "completed")
        [finished] = [frame.data for frame in result if frame.event == "tool.finished"]
        assert (finished["call"], finished["result"]) == (call, {"status": "done"})
        again = await client.post(path, json=body)
        assert (again.status_code, again.json()["answers"]) == (202, call)
        assert again.headers["location"] == answer.headers["location"]
        other = await client.post(path, json=body | {"result": 1})
        assert (other.status_code, other.json()["type"]) == (409, "urn:lango:error:turn-conflict")
        assert (await client.get(f"/v1/turns/{turn}")).json()["state"] == "answered"


@pytest.mark.parametrize("result", [None, "done", 7, [1]])
async def test_a_result_is_any_json(result: Any, sqlite_served: ServedApp) -> None:
    async with sqlite_served.client() as client, sqlite_served.worker():
        turn, call = await _pending(sqlite_served, client)
        body = {"call": call, "result": result}
        shown = await read(
            await client.post(f"/v1/turns/{turn}/results", json=body, headers=STREAM)
        )
    [finished] = [frame.data for frame in shown if frame.event == "tool.finished"]
    assert finished["result"] == {"result": result}


@pytest.mark.parametrize("body", [{}, {"call": "c"}, {"result": 1}, {"call": "", "result": 1}])
async def test_what_is_no_result_is_refused(body: dict[str, Any], sqlite_served: ServedApp) -> None:
    turn = await sqlite_served.turn(await sqlite_served.session(), "hi")
    async with sqlite_served.client() as client:
        answer = await client.post(f"/v1/turns/{turn}/results", json=body)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:lango:error:invalid-request")


async def test_a_result_comes_from_its_user_alone(served: ServedApp) -> None:
    async with served.client() as client, served.worker():
        turn, call = await _pending(served, client)
        body = {"call": call, "result": 1}
        for name in ("bob", "other-ann"):
            async with served.client(name) as stranger:
                answer = await stranger.post(f"/v1/turns/{turn}/results", json=body)
            assert (answer.status_code, answer.json()["type"]) == (
                *(404, "urn:lango:error:turn-not-found"),
            )
        missing = await client.post(f"/v1/turns/{turn}/results", json={"call": "x", "result": 1})
        assert (missing.status_code, missing.json()["type"]) == (
            *(404, "urn:lango:error:call-not-found"),
        )
        assert (await client.get(f"/v1/turns/{turn}")).json()["state"] == "input_required"


async def test_a_result_is_no_approval(served: ServedApp) -> None:
    async with served.client() as client, served.worker():
        turn, waiting = await _asked(served, client)
        for field in ("approval", "call"):
            body = {"call": waiting.data[field], "result": {"confirmed": True}}
            answer = await client.post(f"/v1/turns/{turn}/results", json=body)
            assert (answer.status_code, answer.json()["type"]) == (
                *(409, "urn:lango:error:turn-conflict"),
            )
    assert served.process.workspace.effects.words() == []


async def test_a_result_that_comes_too_early_is_to_be_sent_again(served: ServedApp) -> None:
    async with served.client() as client, served.worker():
        turn = await served.turn(await served.session(), 'call hold {"name": "go"}')
        await served.process.workspace.effects.wait(lambda effects: "held go" in effects)
        body = {"call": "call_1", "result": 1}
        answer = await client.post(f"/v1/turns/{turn}/results", json=body)
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:lango:error:session-busy")
        assert int(answer.headers["retry-after"]) >= 1
        await client.post(f"/v1/turns/{turn}/cancel")
        await served.turns().wait(turn)


async def test_the_turns_of_a_session_are_paged(served: ServedApp) -> None:
    session = await served.session()
    made = [await served.turn(session, f"m{n}") for n in range(5)]
    path = f"/v1/sessions/{session}/turns"
    async with served.client() as client:
        first = (await client.get(path, params={"limit": 3})).json()
        rest = (await client.get(path, params={"limit": 3, "before": first["before"]})).json()
    assert [turn["id"] for turn in first["turns"] + rest["turns"]] == made[::-1]
    assert rest["before"] is None


async def test_a_trimmed_log_is_rebuilt_from_the_history(served: ServedApp) -> None:
    async with served.client() as client, served.worker():
        turn = await served.turn(await served.session(), 'call step {"name": "a"}')
        await served.turns().wait(turn)
        await served.turns().log.trim(-1.0)
        events_read = await read(await client.get(f"/v1/turns/{turn}/events"))
    types = [frame.event for frame in events_read]
    assert types == ["tool.started", "tool.finished", "message.completed", "completed"]


async def test_turns_of_all_sessions_are_listed(served: ServedApp) -> None:
    one, two = await served.session(), await served.session()
    made = [await served.turn(session, "hi") for session in (one, two, one)]
    bobs = await served.turn(await served.session("bob"), "hi", "bob")
    await served.turns().cancel(made[0])
    async with served.client() as client:
        first = (await client.get("/v1/turns", params={"limit": 2})).json()
        assert [(each["id"], each["session"]) for each in first["turns"]] == [
            (made[2], one),
            (made[1], two),
        ]
        rest = (await client.get("/v1/turns", params={"cursor": first["next"]})).json()
        assert ([each["id"] for each in rest["turns"]], rest["next"]) == ([made[0]], None)
        cancelled = (await client.get("/v1/turns", params={"state": "cancelled"})).json()
        assert [each["id"] for each in cancelled["turns"]] == [made[0]]
        other = (await client.get("/v1/turns", params={"app": "another"})).json()
        assert other["turns"] == []
        assert (await client.get("/v1/turns", params={"everyone": True})).status_code == 403
    async with served.client("bob") as client:
        assert [each["id"] for each in (await client.get("/v1/turns")).json()["turns"]] == [bobs]


async def test_a_cancelled_turn_is_retried(served: ServedApp) -> None:
    session = await served.session()
    first = await served.turn(session, "hi")
    async with served.client() as client:
        early = await client.post(f"/v1/turns/{first}/retry")
        assert (early.status_code, early.json()["type"]) == (409, "urn:lango:error:turn-conflict")
        await client.post(f"/v1/turns/{first}/cancel")
        answers = [await client.post(f"/v1/turns/{first}/retry") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["id"] == answers[1].json()["id"] != first
    assert answers[0].json()["message"] == "hi"
    async with served.client("bob") as client:
        assert (await client.post(f"/v1/turns/{first}/retry")).status_code == 404
