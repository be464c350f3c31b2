"""An app with authentication alone: it answers with the caller that it has identified."""

from types import SimpleNamespace
from typing import Any

import httpx
from fastapi import FastAPI

from lango.server.auth.callers import AnyCaller, Identity
from lango.server.auth.limits import Admitting
from lango.server.http.problems import MEDIA_TYPE, add_problems

LOCAL = ("127.0.0.1", 40_000)


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.time = 1_000.0

    def __call__(self) -> float:
        return self.time


async def _who(caller: AnyCaller) -> dict[str, Any]:
    return {
        "tenant": caller.tenant,
        "user": caller.user,
        "scopes": sorted(caller.scopes),
        "key_id": caller.key_id,
    }


async def _turn(admission: Admitting) -> dict[str, str]:
    await admission.take()
    return {"user": admission.user.user}


class _Unlimited:
    async def take_turn(self, tenant: str) -> None:
        """Let every tenant have another turn."""


def auth_app(identity: Identity) -> FastAPI:
    """An app with that doorkeeper."""
    app = FastAPI(openapi_url=None)
    app.state.identity = identity
    app.state.services = SimpleNamespace(quotas=_Unlimited())
    app.get("/who")(_who)
    app.post("/turn")(_turn)
    add_problems(app)
    return app


Headers = dict[str, str] | list[tuple[str, str]]


async def request_to(
    app: FastAPI,
    path: str = "/who",
    *,
    bearer: str | None = None,
    headers: Headers | None = None,
    method: str = "GET",
    host: str = "localhost:8000",
    client: tuple[str, int] = LOCAL,
) -> httpx.Response:
    """One request, with a credential if there is one."""
    sent = list(headers.items() if isinstance(headers, dict) else headers or [])
    if bearer is not None:
        sent.append(("authorization", f"Bearer {bearer}"))
    transport = httpx.ASGITransport(app, client=client)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as web:
        return await web.request(method, path, headers=httpx.Headers(sent, encoding="utf-8"))


def refused(response: httpx.Response, status: int, words: str) -> None:
    """Check that a request was refused, by a problem that says why."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == MEDIA_TYPE
    body = response.json()
    assert words.lower() in body.get("detail", body["title"]).lower()
    assert (response.headers.get("www-authenticate") == "Bearer") is (status == 401)
