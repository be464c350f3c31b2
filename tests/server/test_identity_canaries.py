"""Secrets are sent in every wrong way there is, and then looked for in every answer and log."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from faults.turn_place import Place, Process, process
from lango.config.settings import OidcSettings
from lango.core.keys import KeyLimits, KeyText
from lango.server.app import create_app
from lango.server.backend import ServerOptions
from lango.server.identity import Credentials, Keys
from lango.server.identity_oidc import Tokens
from lango.server.serving import Stop, listen, serve
from lango.store.keys import KeyStore
from lango.store.sessions import SqlSessionStore
from tests.server.doors import door, knock, refused
from tests.server.issuers import AUDIENCE, Issuer, issuing, new_key, signed
from tests.server.places import PlaceBackend

PASSWORD = "pw-canary-1b6f"
OF_THE_CLIENT = ("httpx", "httpcore")  # that of these tests notes what it sends


@dataclass
class Canaries:
    """What must not be seen, and all that was."""

    logs: pytest.LogCaptureFixture
    secrets: list[str] = field(default_factory=list[str])
    bodies: list[str] = field(default_factory=list[str])

    def plant(self, credential: str) -> str:
        """A secret from now on: all of a key or token, and the part of it that matters."""
        key = KeyText.read(credential)
        vital = key.secret if key else credential.rpartition(".")[2]
        self.secrets += [credential, vital] if len(vital) > 8 else [credential]
        return credential

    def saw(self, answer: httpx.Response) -> httpx.Response:
        """Keep an answer, headers and all."""
        self.bodies.append(f"{answer.status_code} {answer.headers!r} {answer.text}")
        return answer

    def check(self) -> None:
        """None of the secrets has been seen anywhere."""
        records = [one for one in self.logs.records if not one.name.startswith(OF_THE_CLIENT)]
        form = logging.Formatter()
        seen = [*self.bodies, *(f"{form.format(one)} {vars(one)!r}" for one in records)]
        assert self.secrets
        assert seen
        leaks = [(secret, text) for secret in self.secrets for text in seen if secret in text]
        assert leaks == []


@pytest.fixture
def canaries(caplog: pytest.LogCaptureFixture) -> Canaries:
    caplog.set_level(logging.DEBUG)
    return Canaries(caplog)


@pytest_asyncio.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing(new_key("ES256")) as opened:
        yield opened


@pytest_asyncio.fixture
async def here(place: Place) -> AsyncIterator[Process]:
    async with process(place, dead_after=60.0) as opened:
        yield opened


def app_of(here: Process, issuer: Issuer) -> FastAPI:
    oidc = OidcSettings(issuer=issuer.url, audience=AUDIENCE)
    identity = Credentials(Keys(here.store.database), Tokens(oidc))
    return create_app(PlaceBackend(here), identity, ServerOptions(apps=(here.place.app,)))


async def credentials(here: Process, issuer: Issuer, canaries: Canaries, tenant: str) -> list[str]:
    """Good ones and bad ones."""
    keys = KeyStore(here.store.database)
    good = await keys.create(tenant, user="ann")
    revoked = await keys.create(tenant, user="ann")
    await keys.revoke(tenant, revoked.key.id)
    tired = await keys.create(tenant, user="ann", limits=KeyLimits(requests=1))
    unknown = KeyText.new()
    tokens = [
        issuer.token(),
        issuer.token(exp=int(time.time()) - 36_000),
        issuer.token(aud="another"),
        issuer.token(iss="https://evil.example"),
        issuer.token(sub=None),
        issuer.token(key=new_key("ES256")),
        signed({"alg": "none", "kid": issuer.key.kid}, issuer.claims(), None),
        issuer.token() + "canary",
        "canary-that-is-no-token-at-all",
    ]
    texts = [good.text, revoked.text, tired.text, unknown.text, good.text + "canary", *tokens]
    return [canaries.plant(text) for text in texts]


REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/v1/agents", {}),
    ("GET", "/v1/sessions/ses_nix", {}),
    ("GET", "/nix", {}),
    ("PUT", "/v1/agents", {}),
    ("POST", "/v1/sessions", {"json": {"app": 7, "nix": "{secret}"}}),
    ("POST", "/v1/sessions", {"json": {"app": "{secret}"}}),
    ("POST", "/v1/sessions", {"content": "{secret}"}),
    ("POST", "/v1/sessions", {"content": "{secret}", "type": "application/json"}),
    ("GET", "/v1/sessions?limit={secret}", {}),
    ("GET", "/v1/sessions?access_token={secret}", {}),
    ("GET", "/v1/turns/{secret}", {}),
]


async def ask(client: httpx.AsyncClient, number: int, secret: str, headers: Any) -> httpx.Response:
    method, path, body = REQUESTS[number]
    given = {name: _filled(value, secret) for name, value in body.items() if name != "type"}
    sent = list(headers)
    if "type" in body:
        sent.append(("content-type", body["type"]))
    return await client.request(method, path.replace("{secret}", secret), headers=sent, **given)


def _filled(value: Any, secret: str) -> Any:
    if isinstance(value, dict):
        return {name: _filled(inner, secret) for name, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value.replace("{secret}", secret) if isinstance(value, str) else value


@pytest.mark.parametrize("where", ["log", "body"])
def test_a_leak_would_be_seen(canaries: Canaries, where: str) -> None:
    text = canaries.plant(KeyText.new().text)
    if where == "log":
        logging.getLogger("lango.server").debug("the secret is %s", text[-43:])
    else:
        canaries.saw(httpx.Response(400, text=f"no such key: {text}"))
    with pytest.raises(AssertionError):
        canaries.check()


@pytest.mark.parametrize("number", range(len(REQUESTS)))
async def test_no_answer_and_no_log_holds_a_credential(
    here: Process, issuer: Issuer, canaries: Canaries, tenant: str, number: int
) -> None:
    transport = httpx.ASGITransport(app_of(here, issuer))
    texts = await credentials(here, issuer, canaries, tenant)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for text in texts:
            for headers in (
                [("authorization", f"Bearer {text}")],
                [("authorization", f"Bearer {text}"), ("lango-user", "zoe")],
                [("authorization", f"Bearer {text}"), ("host", "evil.example")],
                [("authorization", f"Bearer {text}"), ("authorization", f"Bearer {text}")],
                [("authorization", f"Basic {text}")],
                [("authorization", text)],
                [("x-api-key", text), ("cookie", f"key={text}")],
            ):
                answer = canaries.saw(await ask(client, number, text, headers))
                assert answer.status_code < 500, answer.text
    canaries.check()


async def test_an_issuer_that_is_down(
    here: Process, issuer: Issuer, canaries: Canaries, tenant: str
) -> None:
    transport = httpx.ASGITransport(app_of(here, issuer))
    texts = await credentials(here, issuer, canaries, tenant)
    await issuer.stop()
    statuses: set[int] = set()
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for text in texts:
            headers = {"authorization": f"Bearer {text}"}
            answer = canaries.saw(await client.get("/v1/agents", headers=headers))
            statuses.add(answer.status_code)
    assert 503 in statuses
    canaries.check()


async def test_a_database_that_is_down(canaries: Canaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lango.store.faults.TRIES", 1)
    store = SqlSessionStore(f"postgresql://ann:{PASSWORD}@127.0.0.1:1/none")
    app = door(Credentials(Keys(store.database)))
    canaries.secrets.append(PASSWORD)
    answer = await knock(app, bearer=canaries.plant(KeyText.new().text))
    refused(canaries.saw(answer), 503, "database")
    assert answer.json()["error_id"] in canaries.logs.text
    canaries.check()


async def test_over_a_real_connection(
    here: Process, issuer: Issuer, canaries: Canaries, tenant: str
) -> None:
    listening, stop, ready = listen("127.0.0.1", 0), Stop(), asyncio.Event()
    port = listening.getsockname()[1]
    app = app_of(here, issuer)
    serving = asyncio.create_task(serve(app, listening, stop=stop, on_ready=ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    try:
        for text in await credentials(here, issuer, canaries, tenant):
            for broken in (
                f"GET /v1/agents?key={text} HTTP/1.1\r\nHost: localhost\r\n\r\n",
                f"GET /v1/agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {text}\r\n\r\n",
                f"GET /v1/agents HTTP/1.1\r\nAuthorization {text}\r\n\r\n",
                f"{text}\r\n\r\n",
            ):
                canaries.bodies.append(await _sent(port, broken))
    finally:
        waiting.cancel()
        stop.ask()
        await serving
    canaries.check()


async def _sent(port: int, text: str) -> str:
    """What a server says to raw bytes, up to the end of the first answer's head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(text.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        return head.decode("latin-1") + (await reader.read(4096)).decode("latin-1")
    except asyncio.IncompleteReadError as ended:
        return ended.partial.decode("latin-1")
    finally:
        writer.close()
        await writer.wait_closed()
