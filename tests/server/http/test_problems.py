"""Every error is a problem as RFC 9457 has it, and tells nothing of what is inside."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import HTTPException

from faults.turns.workspace import Workspace
from lango import errors
from lango.errors import LangoError, ServerBusyError
from lango.server.http.problems import MEDIA_TYPE, STATUS, Problem, status_of, type_of
from tests.server.served_apps import ServedApp, served_app

SECRET = "s3cret-canary"


def _kinds(kind: type[LangoError] = LangoError) -> Iterator[type[LangoError]]:
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield below
            yield from _kinds(below)


KINDS = sorted(set(_kinds()), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_every_error_is_answered(
    kind: type[LangoError], sqlite_served: ServedApp, caplog: pytest.LogCaptureFixture
) -> None:
    error = kind(SECRET)

    async def fail(_: Any) -> None:
        raise error

    sqlite_served.app.state.identity.caller = fail
    async with sqlite_served.client() as client:
        answer = await client.get("/v1/agents")
    told = Problem.model_validate_json(answer.content, strict=True, extra="forbid")
    status = status_of(error)
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert (answer.status_code, told.status) == (status, status)
    assert (told.error_id is not None) == (status >= 500)
    if status >= 500:
        assert SECRET not in answer.text
        assert [str(told.error_id) in record.message for record in caplog.records] == [True]
        has_traceback = caplog.records[0].exc_info is not None
        assert has_traceback == (kind is not ServerBusyError)
    if status in (409, 429, 503) and kind.retryable:
        assert int(answer.headers["retry-after"]) >= 1
    assert ("www-authenticate" in answer.headers) == (status == 401)


def test_an_error_has_the_status_of_the_kind_above_it() -> None:
    class OwnBusyError(errors.SessionBusyError):
        pass

    assert status_of(OwnBusyError()) == 409
    assert status_of(ValueError()) == 500
    assert all(400 <= status < 600 for status in STATUS.values())


def test_types_are_named_after_their_errors() -> None:
    assert type_of("SessionNotFoundError") == "urn:lango:error:session-not-found"
    assert len({type_of(kind.__name__) for kind in KINDS}) == len(KINDS)


async def test_an_unexpected_error_is_answered_and_logged(
    sqlite_served: ServedApp, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Any) -> None:
        raise RuntimeError(SECRET)

    sqlite_served.app.state.identity.caller = fail
    async with sqlite_served.client() as client:
        answer = await client.get(f"/v1/agents?key={SECRET}")
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:lango:error:internal")
    assert SECRET not in answer.text
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.ERROR, "lango.server.http.problems")
    assert answer.json()["error_id"] in record.message
    assert SECRET not in record.message
    assert SECRET in caplog.text  # in the traceback, where it belongs


@pytest.mark.parametrize(
    ("method", "path", "status", "name"),
    [
        ("GET", "/nothing/here", 404, "not-found"),
        ("GET", "/v1/agents/", 404, "not-found"),
        ("PUT", "/v1/agents", 405, "method-not-allowed"),
        ("GET", "/v1/sessions?limit=many", 422, "invalid-request"),
    ],
)
async def test_what_the_framework_refuses_is_a_problem_too(
    method: str, path: str, status: int, name: str, sqlite_served: ServedApp
) -> None:
    async with sqlite_served.client() as client:
        answer = await client.request(method, path)
    assert answer.headers["content-type"] == MEDIA_TYPE
    told = Problem.model_validate_json(answer.content)
    assert (answer.status_code, told.status, told.type) == (
        status,
        status,
        f"urn:lango:error:{name}",
    )
    assert ("allow" in answer.headers) == (status == 405)


async def test_an_http_exception_of_a_part_is_a_problem(sqlite_served: ServedApp) -> None:
    async def fail(_: Any) -> None:
        raise HTTPException(418, SECRET)

    sqlite_served.app.state.identity.caller = fail
    async with sqlite_served.client() as client:
        answer = await client.get("/v1/agents")
    assert (answer.status_code, answer.headers["content-type"]) == (418, MEDIA_TYPE)
    assert SECRET not in answer.text


async def test_what_was_sent_is_not_repeated(sqlite_served: ServedApp) -> None:
    session = await sqlite_served.session()
    async with sqlite_served.client() as client:
        answers = [
            await client.post("/v1/sessions", json={"app": [SECRET], "title": {"a": SECRET}}),
            await client.post("/v1/sessions", json={"app": f"{SECRET}\x00"}),
            await client.get(f"/v1/sessions?limit={SECRET}"),
            await client.get(f"/v1/sessions?cursor={SECRET}"),
            await client.get(f"/v1/sessions/{SECRET}"),
            await client.get(f"/v1/turns/{SECRET}/events"),
            await client.post(
                f"/v1/sessions/{session}/turns", json={"message": "x", "busy": SECRET}
            ),
            await client.get("/v1/agents", headers={"Authorization": f"Bearer {SECRET}"}),
        ]
    assert [answer.status_code for answer in answers] == [422, 422, 422, 422, 404, 404, 422, 401]
    assert [answer.text for answer in answers if SECRET in answer.text] == []


@pytest.mark.parametrize("path", ["/v1/agents", "/v1/nothing", "/openapi.json", "/healthz"])
async def test_no_answer_in_json_is_kept_or_guessed_at(path: str, sqlite_served: ServedApp) -> None:
    async with sqlite_served.client() as client:
        answer = await client.get(path)
    kept = (answer.headers["cache-control"], answer.headers["x-content-type-options"])
    assert kept == ("no-store", "nosniff")


async def test_a_path_cannot_write_lines_into_the_log(
    sqlite_served: ServedApp, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Any) -> None:
        raise RuntimeError

    sqlite_served.app.state.identity.caller = fail
    async with sqlite_served.client() as client:
        answer = await client.get("/v1/sessions/a%0aFORGED%1b[2J")
    assert answer.status_code == 500
    (record,) = caplog.records
    assert "a%0AFORGED%1B%5B2J" in record.message


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/openai/v1/nothing", 404), ("PUT", "/openai/v1/models", 405)],
)
async def test_clients_of_openai_read_one_form_everywhere(
    method: str, path: str, status: int, sqlite_served: ServedApp
) -> None:
    async with sqlite_served.client() as client:
        answer = await client.request(method, path)
        elsewhere = await client.request(method, path, headers={"Host": "elsewhere"})
    for told, wanted in ((answer, status), (elsewhere, 421)):
        assert told.status_code == wanted
        assert set(told.json()["error"]) == {"message", "type", "param", "code"}


async def test_apps_of_one_process_have_their_own_forms(
    sqlite_workspace: Workspace, tenant: str
) -> None:
    forms: dict[str, set[str]] = {}
    async with (
        served_app(sqlite_workspace, tenant, adk_routes="/") as at_root,
        served_app(sqlite_workspace, tenant) as without,
    ):
        for name, served in (("root", at_root), ("without", without)):
            async with served.client() as client:
                forms[name] = set((await client.put("/run")).json())
                assert set((await client.get("/openai/nowhere")).json()) == {"error"}
    assert forms["root"] == {"detail"}
    assert "type" in forms["without"]
