"""The public keys of a token issuer: fetched when needed, then cached."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from http import HTTPStatus
from typing import Any, Final, cast

import httpx
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet

from lango.core.loopback import is_private_way
from lango.errors import IdentityUnavailableError, UnauthorizedError
from lango.server.auth.limits import Clock

logger = logging.getLogger(__name__)

DISCOVERY: Final = "/.well-known/openid-configuration"
FRESH: Final = 600.0
"""Seconds for which keys are cached: a withdrawn key stops working after the next fetch."""
UNKNOWN: Final = 60.0
"""Least seconds between two fetches for an unknown key."""
FAILED: Final = 5.0
"""Least seconds between two tries while no keys are cached."""
_PUBLIC: Final = ("RSA", "EC", "OKP")  # the other kind is a shared secret
_TIMEOUT: Final = 5.0
_MAX_BYTES: Final = 1 << 20

Document = dict[str, Any]


class _UnusableError(Exception):
    """The issuer's answer is not usable."""


class KeySource:
    """The keys of one issuer. Concurrent callers share one fetch."""

    def __init__(
        self, issuer: str, jwks_url: str | None = None, *, clock: Clock = time.monotonic
    ) -> None:
        self._issuer = issuer
        self._jwks_url = jwks_url
        self._clock = clock
        self._fetching = asyncio.Lock()
        self._keys: KeySet | None = None
        self._fetched = 0.0
        self._tried: float | None = None
        self._failed = False

    async def key(self, kid: str | None, algorithm: str) -> Key:
        """The key of that id; UnauthorizedError if the issuer has none.

        IdentityUnavailableError if the issuer is unreachable and might have it.
        """
        keys = await self._current()
        key = _pick(keys, kid, algorithm)
        if key is None:
            await self._fetch_unless_tried_within(UNKNOWN)
            key = _pick(self._keys, kid, algorithm)
        if key is not None:
            return key
        if self._failed:
            raise self._unavailable(UNKNOWN)
        raise UnauthorizedError("The token is signed by a key that its issuer does not have.")

    async def _current(self) -> KeySet:
        if self._keys is None:
            await self._fetch_unless_tried_within(FAILED)
        elif self._clock() - self._fetched > FRESH and not self._fetching.locked():
            await self._fetch_unless_tried_within(UNKNOWN)
        if self._keys is None:
            raise self._unavailable(FAILED)
        return self._keys

    def _unavailable(self, pause: float) -> IdentityUnavailableError:
        remaining = pause - (self._clock() - (self._tried or 0.0))
        return IdentityUnavailableError(retry_after=max(remaining, 1.0))

    async def _fetch_unless_tried_within(self, pause: float) -> None:
        async with self._fetching:
            if self._tried is not None and self._clock() - self._tried < pause:
                return
            try:
                self._keys = await self._fetch()
                self._fetched, self._failed = self._clock(), False
            except (httpx.HTTPError, httpx.InvalidURL, _UnusableError) as error:
                self._failed = True
                logger.warning("No keys from %s: %s", self._issuer, error or type(error).__name__)
            # Not after a cancelled fetch: the next waiting task then tries.
            self._tried = self._clock()

    async def _fetch(self) -> KeySet:
        async with httpx.AsyncClient(timeout=_TIMEOUT) as web:
            url = self._jwks_url or await self._discovered(web)
            keys = (await _document(web, url)).get("keys")
        if not isinstance(keys, list):
            raise _UnusableError(f"{url} holds no key set")
        read = [_read(entry) for entry in cast("list[Any]", keys)]
        return KeySet([key for key in read if key is not None])

    async def _discovered(self, web: httpx.AsyncClient) -> str:
        document = await _document(web, self._issuer.rstrip("/") + DISCOVERY)
        url = document.get("jwks_uri")
        if document.get("issuer") != self._issuer:
            raise _UnusableError("its discovery document is that of another issuer")
        if not isinstance(url, str) or not is_private_way(url):
            raise _UnusableError("its discovery document names no jwks_uri with https")
        return url


def _pick(keys: KeySet | None, kid: str | None, algorithm: str) -> Key | None:
    try:
        return None if keys is None else keys.get_by_kid(kid, {"alg": algorithm, "use": "sig"})
    except InvalidKeyIdError:
        return None


def _read(data: Any) -> Key | None:
    """A public key; None if its kind is unknown, or it is no public key."""
    try:
        return JWKRegistry.import_key(data) if data["kty"] in _PUBLIC else None
    except (JoseError, KeyError, TypeError, ValueError):
        return None


async def _document(web: httpx.AsyncClient, url: str) -> Document:
    """Fetch a JSON object; _UnusableError if the answer is none."""
    async with web.stream("GET", url, headers={"Accept": "application/json"}) as answer:
        if answer.status_code != HTTPStatus.OK:
            raise _UnusableError(f"{url} answers with {answer.status_code}")
        body = bytearray()
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > _MAX_BYTES:
                raise _UnusableError(f"{url} is too long")
    try:
        document: Any = json.loads(bytes(body))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _UnusableError(f"{url} is no JSON object")
    return cast(Document, document)
