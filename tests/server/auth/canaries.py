"""Secrets to be sent in every wrong way there is, and then looked for in every answer and log."""

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from fastapi import FastAPI

from faults.turns.workspace import TurnProcess
from lango.config.server import OidcSettings
from lango.core.ids import new_id
from lango.core.keys import KeyLimits, KeyText
from lango.server.app import create_app
from lango.server.auth.identity import Credentials, Keys
from lango.server.auth.oidc import Tokens
from lango.server.backend import ServerOptions
from lango.store.keys import KeyStore
from tests.server.auth.issuers import AUDIENCE, Issuer, new_key, signed
from tests.server.served_apps import ProcessBackend, ServedApp

OF_THE_CLIENT = ("httpx", "httpcore")  # that of these trials notes what it sends
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


class _Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@dataclass
class Canaries:
    """What must not be seen, and all that was."""

    logged: list[logging.LogRecord]
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

    @property
    def logs(self) -> list[str]:
        """What was logged, with all that a record carries."""
        form = logging.Formatter()
        ours = [one for one in self.logged if not one.name.startswith(OF_THE_CLIENT)]
        return [f"{form.format(one)} {vars(one)!r}" for one in ours]

    def leaks(self) -> list[tuple[str, str]]:
        """The secrets that were seen, each with where."""
        seen = [*self.bodies, *self.logs]
        assert self.secrets
        assert seen
        return [(secret, text) for secret in self.secrets for text in seen if secret in text]


@contextmanager
def listening() -> Generator[Canaries]:
    """Canaries, and an ear for whatever is logged in this block."""
    kept, root = _Kept(), logging.getLogger()
    level = root.level
    root.addHandler(kept)
    root.setLevel(logging.DEBUG)
    try:
        yield Canaries(kept.records)
    finally:
        root.setLevel(level)
        root.removeHandler(kept)


def app_of(process: TurnProcess, issuer: Issuer) -> FastAPI:
    """A server that knows keys, and the tokens of an issuer."""
    oidc = OidcSettings(issuer=issuer.url, audience=AUDIENCE)
    identity = Credentials(Keys(process.store.database), Tokens(oidc))
    return create_app(
        ProcessBackend(process), identity, ServerOptions(apps=(process.workspace.app,))
    )


async def credentials(
    process: TurnProcess, issuer: Issuer, canaries: Canaries, tenant: str
) -> list[str]:
    """Good ones and bad ones."""
    keys = KeyStore(process.store.database)
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


async def send_everywhere(
    app: FastAPI, number: int, texts: list[str], canaries: Canaries
) -> list[int]:
    """Send a request with each secret in each part that a client can set; return the statuses."""
    statuses: list[int] = []
    transport = httpx.ASGITransport(app)
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
                answer = canaries.saw(await _ask(client, number, text, headers))
                statuses.append(answer.status_code)
    return statuses


async def say(served: ServedApp, canaries: Canaries) -> None:
    """A turn whose message, and the arguments and the effects of whose tool, hold a secret."""
    secret = f"canary-{new_id('said')}"
    canaries.secrets.append(secret)
    session = await served.session()
    turn = await served.turn(session, f'call mark {{"name": "{secret}"}}')
    async with served.worker():
        assert (await served.turns().wait(turn)).state == "completed"
    async with served.client("bob") as client:
        canaries.saw(await client.get(f"/v1/sessions/{session}/messages"))


async def _ask(
    client: httpx.AsyncClient, number: int, secret: str, headers: list[tuple[str, str]]
) -> httpx.Response:
    method, path, body = REQUESTS[number]
    given = {name: _filled(value, secret) for name, value in body.items() if name != "type"}
    sent = [*headers, ("content-type", body["type"])] if "type" in body else headers
    return await client.request(method, path.replace("{secret}", secret), headers=sent, **given)


def _filled(value: Any, secret: str) -> Any:
    if isinstance(value, dict):
        return {name: _filled(inner, secret) for name, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value.replace("{secret}", secret) if isinstance(value, str) else value
