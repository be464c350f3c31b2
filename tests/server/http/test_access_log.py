"""Ids of requests, and the access log."""

import logging
import re

import pytest

from lango.core.current import WithRequestId
from tests.server.served_apps import ServedApp, live

HEADER = "x-request-id"


@pytest.mark.parametrize("path", ["/healthz", "/v1/sessions", "/nothing", "/openai/v1/models"])
@pytest.mark.parametrize("caller", ["ann", None])
async def test_every_answer_has_an_id(
    sqlite_served: ServedApp, path: str, caller: str | None
) -> None:
    async with live(sqlite_served) as server, server.client(caller) as client:
        first, second = [(await client.get(path)).headers[HEADER] for _ in range(2)]
        assert re.fullmatch(r"req_[0-9a-f]+", first)
        assert first != second
        given = await client.get(path, headers={HEADER: "gateway-1.a_B"})
        assert given.headers[HEADER] == "gateway-1.a_B"


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "-a", "a[b", "é"])
async def test_an_id_that_could_spoil_a_log_is_replaced(
    sqlite_served: ServedApp, given: str
) -> None:
    async with live(sqlite_served) as server, server.client() as client:
        answer = await client.get("/healthz", headers={HEADER.encode(): given.encode()})
        assert re.fullmatch(r"req_[0-9a-f]+", answer.headers[HEADER])


async def test_a_line_for_each_request(
    sqlite_served: ServedApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lango.access")
    caplog.handler.addFilter(WithRequestId())
    async with live(sqlite_served) as server, server.client() as client:
        await client.get("/v1/sessions?app=secret", headers={HEADER: "one"})
        await client.get("/v1/a%0Ab", headers={HEADER: "two"})
    lines = [record for record in caplog.records if record.name == "lango.access"]
    assert [vars(line)["request"] for line in lines] == ["[one] ", "[two] "]
    listed, missing = [line.getMessage() for line in lines]
    assert re.fullmatch(r"127\.0\.0\.1 GET /v1/sessions 200 \d+ B \d+ ms key_ann", listed)
    assert re.fullmatch(r"127\.0\.0\.1 GET /v1/a%0Ab 404 \d+ B \d+ ms \S+", missing)


async def test_what_is_logged_for_a_request_has_its_id(
    sqlite_served: ServedApp, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.handler.addFilter(WithRequestId())

    async def broken(*given: object, **named: object) -> None:
        raise RuntimeError(given, named)

    monkeypatch.setattr(type(sqlite_served.process.store), "page", broken)
    async with live(sqlite_served) as server, server.client() as client:
        answer = await client.get("/v1/sessions", headers={HEADER: "mine"})
    assert answer.status_code == 500
    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert vars(record)["request"] == "[mine] "
