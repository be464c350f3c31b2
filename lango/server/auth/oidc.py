"""Tokens of an OpenID Connect issuer: checks the signature, audience and expiry of JWTs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, cast

from fastapi import Request
from joserfc import jws
from joserfc.errors import (
    ClaimError,
    ExpiredTokenError,
    JoseError,
    MissingClaimError,
    UnsupportedAlgorithmError,
)
from joserfc.jws import CompactSignature, JWSRegistry
from joserfc.jwt import JWTClaimsRegistry

from lango.config.server import OidcSettings
from lango.core.ids import check_id
from lango.core.keys import CHAT, SCOPES, KeyLimits, with_implied
from lango.errors import InvalidIdError, UnauthorizedError
from lango.server.auth.callers import Caller
from lango.server.auth.identity import OF_ISSUER, caller_of
from lango.server.auth.jwks import KeySource

ALGORITHMS: Final = ("RS256", "ES256", "EdDSA", "Ed25519")
"""Asymmetric signatures only: with a shared secret, a verifier could also make tokens."""
_MAX_LENGTH: Final = 16_384
# What the parsers raise for malformed tokens.
_MALFORMED: Final = (
    JoseError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class _Signatures(JWSRegistry):
    """Allows ALGORITHMS only, without a warning about EdDSA, which Ed25519 replaces."""

    def get_alg(self, name: str) -> Any:
        if name not in ALGORITHMS:
            raise UnsupportedAlgorithmError(f"Algorithm of '{name}' is not allowed")
        return self.algorithms[name]


_SIGNATURES: Final = _Signatures(strict_check_header=False)


class Tokens:
    """Identifies callers by the tokens of one issuer."""

    def __init__(self, settings: OidcSettings, keys: KeySource | None = None) -> None:
        self._settings = settings
        self._limits = KeyLimits(**settings.limits.model_dump())
        self._keys = keys or KeySource(settings.issuer, settings.jwks_url)
        self._claims = JWTClaimsRegistry(
            leeway=settings.leeway,
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "values": settings.audiences},
            exp={"essential": True},
        )

    async def caller(self, request: Request, credential: str) -> Caller:
        """The caller of a token; UnauthorizedError if the token is not valid."""
        claims = await self._checked(credential)
        tenant, scopes = self._tenant(claims), self._scopes(claims)
        bound = _id(claims, self._settings.user_claim)
        return caller_of(request, tenant, bound, scopes, _key_id(tenant, bound), self._limits)

    async def recheck(self, request: Request, credential: str) -> None:
        """UnauthorizedError if the token is no longer valid."""
        del request
        await self._checked(credential)

    async def limits_of(self, tenant: str, key_id: str) -> KeyLimits:
        """The limits that every user of the issuer has."""
        del tenant, key_id
        return self._limits

    async def _checked(self, token: str) -> Mapping[str, Any]:
        """The claims of a token, after its signature and claims have been checked."""
        signed, kid, algorithm = _read(token)
        key = await self._keys.key(kid, algorithm)
        try:
            if not jws.validate_compact(signed, key, registry=_SIGNATURES):
                raise UnauthorizedError("The signature of the token is wrong.")
            claims: Any = json.loads(signed.payload or b"")
            self._claims.validate(claims)
        except ExpiredTokenError:
            raise UnauthorizedError("The token has expired.") from None
        except MissingClaimError as error:
            raise UnauthorizedError(f"The token has no claim {error.claim}.") from None
        except ClaimError as error:
            raise UnauthorizedError(
                f"The token is not for this server: its claim {error.claim} does not fit."
            ) from None
        except _MALFORMED:
            raise _malformed() from None
        return cast("Mapping[str, Any]", claims)

    def _tenant(self, claims: Mapping[str, Any]) -> str:
        claim = self._settings.tenant_claim
        return self._settings.tenant if claim is None else _id(claims, claim)

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[str]:
        claim = self._settings.scopes_claim
        if claim is None:
            return frozenset({CHAT})
        value: Any = claims.get(claim)
        words = cast("list[Any]", value) if isinstance(value, list) else str(value or "").split()
        return with_implied(scope for scope in SCOPES if scope in words)


def _read(token: str) -> tuple[CompactSignature, str | None, str]:
    """The parsed token, the id of its key and its algorithm; none of it is verified."""
    if len(token) > _MAX_LENGTH:
        raise UnauthorizedError("The token is too long.")
    try:
        signed = jws.extract_compact(token.encode(), registry=_SIGNATURES)
        header = signed.headers()
        algorithm = _SIGNATURES.get_alg(header["alg"]).name
        kid: Any = header.get("kid")
    except UnsupportedAlgorithmError:
        allowed = ", ".join(ALGORITHMS)
        raise UnauthorizedError(f"The token must be signed by one of {allowed}.") from None
    except _MALFORMED:
        raise _malformed() from None
    if kid is not None and not isinstance(kid, str):
        raise _malformed()
    return signed, kid, algorithm


def _key_id(tenant: str, user: str) -> str:
    """The key id of a user's tokens, for limits."""
    return f"{OF_ISSUER}{sha256(json.dumps([tenant, user]).encode()).hexdigest()[:32]}"


def _id(claims: Mapping[str, Any], claim: str) -> str:
    value: Any = claims.get(claim)
    if not isinstance(value, str):
        raise UnauthorizedError(f"The token has no claim {claim} that is a text.")
    try:
        return check_id(claim, value)
    except InvalidIdError:
        raise UnauthorizedError(f"The token's claim {claim} cannot be an id.") from None


def _malformed() -> UnauthorizedError:
    return UnauthorizedError("This is neither an API key nor a token that can be read.")
