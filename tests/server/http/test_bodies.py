"""Bodies: JSON that says so, not too large, not too deep."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect

from faults.turns.workspace import Workspace
from lango.core.values import MAX_DEPTH
from tests.server.served_apps import ServedApp, served_app

JSON = {"Content-Type": "application/json"}


async def post(served: ServedApp, content: Any, headers: dict[str, str] = JSON) -> httpx.Response:
    async with served.client() as client:
        return await client.post("/v1/sessions", content=content, headers=headers)


def nested(levels: int) -> str:
    return '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nothing", b"\xff", b'{"app": NaN}', b'{"app": ' + b"9" * 5000 + b"}"],
    ids=["empty", "cut", "words", "not UTF-8", "NaN", "huge number"],
)
async def test_what_is_no_json_is_refused(body: bytes, sqlite_served: ServedApp) -> None:
    answer = await post(sqlite_served, body)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:lango:error:invalid-body")


@pytest.mark.parametrize(
    "text",
    [nested(MAX_DEPTH + 1), "[" * 500_000, '{"a":' * 100_000],
    ids=["by one", "lists", "objects"],
)
async def test_what_is_too_deep_is_refused(text: str, sqlite_served: ServedApp) -> None:
    answer = await post(sqlite_served, text)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:lango:error:invalid-body")


async def test_what_is_just_not_too_deep_is_read(sqlite_served: ServedApp) -> None:
    assert json.loads(nested(MAX_DEPTH)) is not None
    answer = await post(sqlite_served, nested(MAX_DEPTH))
    assert (answer.status_code, answer.json()["errors"][0]["at"]) == (422, "body.app")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_a_body_must_say_that_it_is_json(kind: str | None, sqlite_served: ServedApp) -> None:
    body = json.dumps({"app": sqlite_served.agent})
    answer = await post(sqlite_served, body, {"Content-Type": kind} if kind else {})
    assert (answer.status_code, answer.json()["type"]) == (415, "urn:lango:error:media-type")


async def test_a_charset_may_be_said(sqlite_served: ServedApp) -> None:
    body = json.dumps({"app": sqlite_served.agent})
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert (await post(sqlite_served, body, headers)).status_code == 201


async def test_a_body_of_the_limit_is_read_and_one_above_is_not(
    sqlite_workspace: Workspace, tenant: str
) -> None:
    async with served_app(sqlite_workspace, tenant, max_body=1_000) as served:
        body = json.dumps({"app": served.agent, "title": ""})
        fits = body.ljust(1_000)
        assert (await post(served, fits)).status_code == 201
        answer = await post(served, fits + " ")
        assert (answer.status_code, answer.json()["type"]) == (
            413,
            "urn:lango:error:body-too-large",
        )


async def test_a_body_without_a_length_is_read_no_further_than_the_limit(
    sqlite_served: ServedApp,
) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1 << 16
            yield b" " * (1 << 16)

    answer = await post(sqlite_served, endless())
    assert answer.status_code == 413
    assert sent <= (1 << 20) + (1 << 16)


async def test_a_key_that_is_no_text_is_refused_without_harm(sqlite_served: ServedApp) -> None:
    answer = await post(sqlite_served, r'{"app": "x", "\ud800": 1}')
    assert answer.status_code == 422


@pytest.mark.parametrize("path", ["/v1/sessions", "/openai/v1/chat/completions"])
async def test_nothing_is_read_of_a_body_whose_sender_is_unknown(
    path: str, sqlite_served: ServedApp
) -> None:
    sent: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        sent.append(b"{")
        yield b"{"

    async with sqlite_served.client(None) as client:
        answer = await client.post(path, content=body(), headers=JSON)
    assert (answer.status_code, sent) == (401, [])


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("br", 415), ("identity", 201)])
async def test_a_packed_body_is_refused(
    encoding: str, status: int, sqlite_served: ServedApp
) -> None:
    body = json.dumps({"app": sqlite_served.agent})
    answer = await post(sqlite_served, body, JSON | {"Content-Encoding": encoding})
    assert answer.status_code == status


@pytest.mark.parametrize(
    "path", ["/v1/sessions", "/adk/run", "/openai/v1/chat/completions"], ids=["v1", "adk", "openai"]
)
async def test_a_client_that_leaves_in_mid_body_is_no_error(
    path: str, adk_sqlite_served: ServedApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def leaving() -> AsyncIterator[bytes]:
        yield b"{"
        raise ClientDisconnect

    async with adk_sqlite_served.client() as client:
        with pytest.raises(AssertionError):  # of the transport: the request has no answer
            await client.post(path, content=leaving(), headers=JSON)
    assert "disconnected before its request was complete" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_an_answer_names_only_the_first_wrong_fields(adk_sqlite_served: ServedApp) -> None:
    many = {"app": adk_sqlite_served.agent} | {f"field_{number}": 1 for number in range(10_000)}
    async with adk_sqlite_served.client() as client:
        answer = await client.post("/v1/sessions", json=many)
        wrong = {"model": "m", "messages": [1] * 10_000}
        openai = await client.post("/openai/v1/chat/completions", json=wrong)
        state = {"userId": "ann", "sessionId": "s1", "newMessage": {"parts": [1] * 1000}}
        adk = await client.post("/adk/run", json=state)
        events = {"events": [1] * 900}
        listed = await client.post(
            f"/adk/apps/{adk_sqlite_served.agent}/users/ann/sessions", json=events
        )
    assert (answer.status_code, len(answer.json()["errors"])) == (422, 20)
    assert (openai.status_code, len(openai.content) < 5_000) == (400, True)
    assert (adk.status_code, len(adk.content) < 5_000) == (422, True)
    assert (listed.status_code, len(listed.json()["detail"])) == (422, 20)
