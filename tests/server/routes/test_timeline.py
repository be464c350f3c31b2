"""GET /v1/turns/{id}/timeline: what happened in a turn, and when."""

from itertools import pairwise
from typing import Any

import pytest

from lango.store.sessions.entries import SessionKey
from lango.store.turns.log import TurnLog
from lango.testing import Fault, Reply
from tests.server.eventful import SCRIPT, Eventful, eventful
from tests.server.served_apps import ServedApp


async def key_of(served: ServedApp) -> SessionKey:
    session = await served.session()
    return SessionKey(served.tenant, served.agent, "ann", session)


async def timeline(served: ServedApp, talk: Eventful, number: int = 1) -> dict[str, Any]:
    """Of the turn of that number in the session."""
    async with served.client() as client:
        path = f"/v1/sessions/{talk.key.session_id}/turns"
        turns = (await client.get(path)).json()["turns"]
        [turn] = [one["id"] for one in turns if one["number"] == number]
        answer = await client.get(f"/v1/turns/{turn}/timeline")
    assert answer.status_code == 200, answer.text
    return answer.json()


def of_kind(sent: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [step for step in sent["steps"] if step["kind"] == kind]


async def test_all_that_happened_is_on_one_axis(served: ServedApp) -> None:
    async with eventful(served.process.store, await key_of(served)) as talk:
        await talk.answer(await talk.ask())
        result = await timeline(served, talk)
        assert await timeline(served, talk, 2) == {
            **result,
            "turn": result["turns"][1],
            "state": "completed",
        }
    assert (result["turn"], result["state"]) == (result["turns"][0], "answered")
    assert len(result["turns"]) == 2
    steps = [(step["kind"], step["name"], step["outcome"]) for step in result["steps"]]
    assert steps == [
        ("queue", "", "completed"),
        ("attempt", "", "input_required"),
        ("model", "demo", "failed"),
        ("retry", "demo", "completed"),
        ("model", "demo", "completed"),
        ("tool", "divide", "failed"),
        ("model", "demo", "completed"),
        ("wait", "pay", "approved"),
        ("queue", "", "completed"),
        ("attempt", "", "completed"),
        ("tool", "pay", "completed"),
        ("model", "demo", "completed"),
    ]
    assert all(a["started"] <= b["started"] for a, b in pairwise(result["steps"]))
    assert all(step["started"] <= step["ended"] for step in result["steps"])
    assert result["started"] == result["steps"][0]["started"]
    assert result["ended"] >= max(step["ended"] for step in result["steps"])


async def test_what_a_model_call_took(served: ServedApp) -> None:
    async with eventful(served.process.store, await key_of(served)) as talk:
        await talk.answer(await talk.ask())
        result = await timeline(served, talk)
    busy, again, paying, last = of_kind(result, "model")
    assert (busy["number"], again["number"], paying["number"]) == (1, 2, 1)
    assert busy["id"] == again["id"] != paying["id"]
    assert (busy["error"]["type"], busy["usage"]) == ("RateLimitedError", None)
    assert (again["agent"], again["provider"]) == ("root", "scripted")
    assert again["started"] <= again["first_byte"] <= again["ended"]
    assert again["usage"] == {"input": 100, "output": 10, "cached": 4, "reasoning": 0, "written": 0}
    assert last["usage"]["reasoning"] == 2
    usage = {"input": 320, "output": 25, "cached": 8, "reasoning": 2, "written": 0}
    assert (result["usage"], result["cost"]) == (usage, None)
    [pause] = of_kind(result, "retry")
    assert (pause["started"], pause["ended"]) == (busy["ended"], again["started"])
    assert (pause["number"], pause["error"]["type"]) == (2, "RateLimitedError")


async def test_a_tool_that_failed_is_known_by_the_id_in_the_log(
    served: ServedApp, caplog: pytest.LogCaptureFixture
) -> None:
    async with eventful(served.process.store, await key_of(served)) as talk:
        await talk.ask()
        result = await timeline(served, talk)
    [divide] = of_kind(result, "tool")
    assert (divide["id"], divide["arguments"]) == ("call_divide", '{"by":0}')
    error = divide["error"]
    assert error["message"] == "The tool divide failed unexpectedly."
    assert error["error_id"].startswith("err_")
    assert error["error_id"] in caplog.text


async def test_a_question_stays_open_until_it_is_answered(served: ServedApp) -> None:
    async with eventful(served.process.store, await key_of(served)) as talk:
        approval = await talk.ask()
        result = await timeline(served, talk)
        [wait] = of_kind(result, "wait")
        assert (wait["id"], wait["ended"], wait["outcome"]) == (approval.id, None, "open")
        assert (result["state"], result["ended"]) == ("input_required", None)
        await talk.answer(approval, approved=False)
        result = await timeline(served, talk)
    [wait] = of_kind(result, "wait")
    assert (wait["outcome"], wait["ended"] is None) == ("denied", False)
    assert [step["name"] for step in of_kind(result, "tool")] == ["divide"]


async def test_a_timeline_without_its_log_keeps_its_steps(served: ServedApp) -> None:
    async with eventful(served.process.store, await key_of(served)) as talk:
        await talk.answer(await talk.ask())
        whole = await timeline(served, talk)
        assert await TurnLog(served.process.store.database).trim(older_than=-60.0) >= 2
        result = await timeline(served, talk)
    assert (whole["log_kept"], result["log_kept"]) == (True, False)
    for kind in ("queue", "model", "tool", "retry"):
        same = ("name", "started", "outcome")
        assert [[step[name] for name in same] for step in of_kind(result, kind)] == [
            [step[name] for name in same] for step in of_kind(whole, kind)
        ]
    [wait] = of_kind(result, "wait")
    assert (wait["name"], wait["outcome"]) == ("", "answered")


async def test_an_error_inside_is_known_by_the_turns_id(
    served: ServedApp, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Reply(fault=Fault(error=RuntimeError("a secret of the inside")))
    async with eventful(served.process.store, await key_of(served), (broken, *SCRIPT)) as talk:
        with pytest.raises(RuntimeError):
            await talk.agent.run_and_collect("hi", **talk.who)
        result = await timeline(served, talk)
    async with served.client() as client:
        workspace = f"/v1/turns/{result['turn']}"
        answers = [
            (await client.get(f"{workspace}{path}")).text for path in ("", "/events", "/timeline")
        ]
    assert [result["turn"] in text for text in answers] == [True, True, True]
    assert not any("secret of the inside" in text for text in answers)
    assert [f'"error_id":"{result["turn"]}"' in text for text in answers] == [True, True, True]
    [attempt] = of_kind(result, "attempt")
    assert attempt["outcome"] == "failed"
    error = attempt["error"]
    assert "secret" not in error["message"]
    assert (error["type"], error["error_id"]) == ("InternalError", result["turn"])
    assert f"Turn {result['turn']} of app" in caplog.text


async def test_before_a_worker_has_come(served: ServedApp) -> None:
    session = await served.session()
    turn = await served.turn(session, "hi")
    async with served.client() as client:
        body = (await client.get(f"/v1/turns/{turn}/timeline")).json()
        assert (body["state"], body["ended"], body["session"]) == ("queued", None, session)
        [queue] = body["steps"]
        assert (queue["kind"], queue["ended"], queue["outcome"]) == ("queue", None, "open")
        await client.post(f"/v1/turns/{turn}/cancel")
        body = (await client.get(f"/v1/turns/{turn}/timeline")).json()
    [queue] = body["steps"]
    assert (queue["outcome"], queue["ended"]) == ("cancelled", body["ended"])


async def test_a_tool_at_work(served: ServedApp) -> None:
    session = await served.session()
    turn = await served.turn(session, 'call hold {"name": "go"}')
    async with served.worker(), served.client() as client:
        effects = served.process.workspace.effects
        await effects.wait(lambda words: "held go" in words)
        body = (await client.get(f"/v1/turns/{turn}/timeline")).json()
        [tool] = of_kind(body, "tool")
        assert (tool["name"], tool["outcome"], tool["ended"]) == ("hold", "running", None)
        assert of_kind(body, "attempt")[0]["outcome"] == "running"
        effects.path.with_name("go").touch()
        await served.turns().wait(turn)
        body = (await client.get(f"/v1/turns/{turn}/timeline")).json()
    assert of_kind(body, "tool")[0]["outcome"] == "completed"
