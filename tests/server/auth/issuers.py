"""An issuer of tokens on loopback: real keys, real signatures, and a JWKS that can fail."""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey

from lango.testing.wires.http import HttpReply, HttpRequest, HttpServer

AUDIENCE = "lango"
DISCOVERY = "/.well-known/openid-configuration"
JWKS = "/keys"


def new_key(algorithm: str) -> Key:
    """A key pair for an algorithm."""
    if algorithm == "RS256":
        return RSAKey.generate_key(2048, auto_kid=True)
    if algorithm == "ES256":
        return ECKey.generate_key("P-256", auto_kid=True)
    return OKPKey.generate_key("Ed25519", auto_kid=True)


class Issuer:
    """Signs tokens, and gives out the keys to check them by."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.published: list[Any] = [key.as_dict(private=False)]
        self.asked: list[str] = []
        self.status = 200
        self.discovery: dict[str, Any] = {}
        self._server = HttpServer(self._answer)

    @property
    def url(self) -> str:
        return self._server.url

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop()

    def publish(self, *keys: Key) -> None:
        """From now on these are the issuer's keys."""
        self.published = [key.as_dict(private=False) for key in keys]

    async def _answer(self, request: HttpRequest) -> HttpReply:
        self.asked.append(request.path)
        document: dict[str, Any] = {"keys": self.published}
        if request.path == DISCOVERY:
            document = {"issuer": self.url, "jwks_uri": self.url + JWKS, **self.discovery}
        body = json.dumps(document).encode()
        return HttpReply(self.status, {"content-type": "application/json"}, _once(body))

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Those of a good token; None leaves one out."""
        now = int(time.time())
        good = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600}
        return {name: value for name, value in {**good, **changes}.items() if value is not None}

    def token(self, algorithm: str = "ES256", *, key: Key | None = None, **changes: Any) -> str:
        """A token signed by the issuer's key, or by another's."""
        signer = key or self.key
        return signed({"kid": signer.kid, "alg": algorithm}, self.claims(**changes), signer)


class _Anything(jws.JWSRegistry):
    """Signs with whatever is asked for, as an attacker would."""

    def get_alg(self, name: str) -> Any:
        return self.algorithms[name]


def signed(header: dict[str, Any], claims: Any, key: Key | None) -> str:
    """Any token at all."""
    registry = _Anything(strict_check_header=False)
    return jws.serialize_compact(header, json.dumps(claims), key, registry=registry)


def shared_secret(public: Key) -> OctKey:
    """A public key taken for a shared secret, as a careless server would."""
    assert not isinstance(public, OctKey)
    pem = public.as_pem(private=False)
    return OctKey(pem, pem)


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


@asynccontextmanager
async def issuing(key: Key) -> AsyncGenerator[Issuer]:
    """An issuer that can be asked until the block ends."""
    issuer = Issuer(key)
    await issuer.start()
    try:
        yield issuer
    finally:
        await issuer.stop()
