"""Identifies callers by an API key or a token: `Authorization: Bearer …`, never in a URL."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final, Protocol, TypeVar

from fastapi import Request

from lango.core.ids import check_id
from lango.core.keys import ACT_AS, ADMIN, NO_LIMITS, SCOPES, KeyLimits, KeyText, holds_key
from lango.errors import ForbiddenError, InvalidIdError, UnauthorizedError
from lango.server.auth.callers import Caller, Identity
from lango.server.auth.limits import Attempts, Clock, Rates, check_turn_limits
from lango.store.allowances import Allowances
from lango.store.db.database import Database
from lango.store.keys import ApiKey, KeyStore

USER_HEADER: Final = "Lango-User"
LOCAL_USER: Final = "user"
"""The user of this machine; `lango chat` uses the same name."""
RUN_KEY: Final = "this-run"
OF_ISSUER: Final = "oidc_"
"""How the key ids of tokens' users begin; no API key has such an id."""
TRUST: Final = 5.0
"""Seconds for which a key's lookup is cached: revocation takes effect within this time."""
_MAX_KNOWN: Final = 10_000
_Name = tuple[str, str]
_V = TypeVar("_V")
_SCHEME: Final = "bearer"
_KEY_PREFIX: Final = "lango_"
_IN_URLS: Final = frozenset({"access_token", "api_key", "apikey", "authorization", "id_token"})
_HOW: Final = "Send it as `Authorization: Bearer …`."


class CredentialKind(Protocol):
    """Identifies callers by one kind of credential: a key, or a token."""

    async def caller(self, request: Request, credential: str) -> Caller:
        """The caller of a credential; UnauthorizedError if it is not valid."""
        ...

    async def recheck(self, request: Request, credential: str) -> None:
        """Check a credential again, without counting a request; UnauthorizedError if not valid."""
        ...

    async def limits_of(self, tenant: str, key_id: str) -> KeyLimits:
        """The limits of a caller of this kind."""
        ...


class Credentials(Identity):
    """Identifies callers by API keys, and by tokens if an issuer is configured."""

    def __init__(
        self, keys: Keys, tokens: CredentialKind | None = None, run_key: RunKey | None = None
    ) -> None:
        self._allowances = Allowances(keys.database)
        self._rates = Rates(self._allowances, keys.clock)
        self._keys = keys
        self._tokens = tokens
        self._run_key = run_key

    async def caller(self, request: Request) -> Caller:
        """The caller: tenant and user are the credential's; with `act_as` it can name the user.

        KeyLimitError if the caller has made too many requests.
        """
        _refuse_in_url(request)
        credential = _bearer(request)
        if self._run_key is not None and self._run_key.fits(credential):
            return self._run_key.caller(request)
        caller = await self._holder(credential).caller(request, credential)
        await self._rates.take(caller)
        return caller

    async def recheck(self, request: Request) -> None:
        """UnauthorizedError if the key was revoked, or the key or token has expired."""
        credential = _bearer(request)
        if self._run_key is None or not self._run_key.fits(credential):
            await self._holder(credential).recheck(request, credential)

    def _holder(self, credential: str) -> CredentialKind:
        if self._tokens is None or credential.startswith(_KEY_PREFIX):
            return self._keys
        return self._tokens

    async def admit(self, caller: Caller) -> None:
        """KeyLimitError if this caller may not have another turn now."""
        await check_turn_limits(self._allowances, caller)

    async def limits_of(self, tenant: str, key_id: str) -> KeyLimits:
        """The limits of an API key, or of the users of tokens; NO_LIMITS for an unknown key."""
        holder = self._tokens if key_id.startswith(OF_ISSUER) else None
        return await (holder or self._keys).limits_of(tenant, key_id)


class Keys:
    """Identifies callers by their API keys."""

    def __init__(self, database: Database, *, clock: Clock = time.monotonic) -> None:
        self.database = database
        self.clock = clock
        self._keys = KeyStore(database)
        self._attempts = Attempts(clock)
        # By id and hash: no secret stays in memory longer than its request.
        self._cached_keys: OrderedDict[_Name, tuple[ApiKey, float]] = OrderedDict()
        self._unknown: OrderedDict[_Name, float] = OrderedDict()  # until this time

    async def caller(self, request: Request, credential: str) -> Caller:
        """The caller of a key.

        TooManyAttemptsError if too many unknown keys came from the same address.
        """
        key = await self._key(request, credential)
        return caller_of(request, key.tenant, key.user, key.scopes, key.id, key.limits)

    async def recheck(self, request: Request, credential: str) -> None:
        """UnauthorizedError if the key is no longer valid."""
        await self._key(request, credential)

    async def limits_of(self, tenant: str, key_id: str) -> KeyLimits:
        """The limits of a key; NO_LIMITS if there is none of that id."""
        return await self._keys.limits_of(tenant, key_id)

    async def _key(self, request: Request, credential: str) -> ApiKey:
        key_text = KeyText.read(credential)
        address = request.client.host if request.client else ""
        key = None if key_text is None else await self._find(key_text, address)
        if key is None:
            raise UnauthorizedError("This API key is unknown here, has expired or was revoked.")
        return key

    async def _find(self, key_text: KeyText, address: str) -> ApiKey | None:
        name, moment = (key_text.id, key_text.hash), self.clock()
        cached, until = self._cached_keys.get(name, (None, 0.0))
        if cached is not None and moment <= until:
            self._cached_keys.move_to_end(name)
            return cached
        first = cached is None
        key = await (
            self._look_up_uncached(key_text, address) if first else self._keys.find(key_text)
        )
        if key is None:
            self._cached_keys.pop(name, None)
        else:
            _remember(self._cached_keys, name, (key, moment + TRUST))
        return key

    async def _look_up_uncached(self, key_text: KeyText, address: str) -> ApiKey | None:
        """Look up a key that is not in the cache of valid ones: it may be a guess."""
        name = (key_text.id, key_text.hash)
        if self._is_unknown(name):
            return None
        async with self._attempts.look_up(address):
            cached, _ = self._cached_keys.get(name, (None, 0.0))
            if cached is not None or self._is_unknown(name):  # another request looked it up
                return cached
            key = await self._keys.find(key_text)
            if key is None:
                self._attempts.count_unknown(address)
                _remember(self._unknown, name, self.clock() + TRUST)
            return key

    def _is_unknown(self, name: _Name) -> bool:
        return self._unknown.get(name, 0.0) >= self.clock()


def _remember(cache: OrderedDict[_Name, _V], name: _Name, value: _V) -> None:
    """Add an entry; above the limit, remove the oldest."""
    cache[name] = value
    if len(cache) > _MAX_KNOWN:
        cache.popitem(last=False)


class RunKey:
    """A key for one run of a server, which acts as the local user."""

    def __init__(self, key: KeyText, tenant: str) -> None:
        self._id = key.id
        self._hash = key.hash
        self._tenant = tenant

    def fits(self, credential: str) -> bool:
        """Whether this is the key."""
        key_text = KeyText.read(credential)
        return key_text is not None and key_text.id == self._id and key_text.fits(self._hash)

    def caller(self, request: Request) -> Caller:
        """The local user."""
        return local_caller(request, self._tenant)


def local_caller(request: Request, tenant: str) -> Caller:
    """The local user, with all scopes."""
    return caller_of(request, tenant, LOCAL_USER, frozenset(SCOPES), RUN_KEY)


def caller_of(
    request: Request,
    tenant: str,
    bound: str | None,
    scopes: frozenset[str],
    key_id: str,
    limits: KeyLimits = NO_LIMITS,
) -> Caller:
    """The caller of a request, by the data of its credential.

    A caller that names the user it acts for loses the scope admin: it sees what that user sees.
    """
    user = _user(request, bound, scopes)
    is_named = USER_HEADER in request.headers
    return Caller(tenant, user, scopes - {ADMIN} if is_named else scopes, key_id, limits)


def _user(request: Request, bound: str | None, scopes: frozenset[str]) -> str | None:
    """The user that a request acts for: the credential's, or the one it names if it may."""
    names = request.headers.getlist(USER_HEADER)
    if not names:
        return bound
    if ACT_AS not in scopes:
        raise ForbiddenError(f"The header {USER_HEADER} needs a credential with the scope act_as.")
    if len(names) > 1:
        raise InvalidIdError(f"The header {USER_HEADER} is there more than once.")
    try:
        user = names[0].encode("latin-1").decode()  # bytes of a header are read as Latin-1
    except UnicodeDecodeError:
        raise InvalidIdError(f"The header {USER_HEADER} is not UTF-8.") from None
    return check_id("user id", user)


def _bearer(request: Request) -> str:
    headers = request.headers.getlist("authorization")
    if not headers:
        raise UnauthorizedError(f"This needs an API key or a token. {_HOW}")
    scheme, _, credential = headers[0].partition(" ")
    if len(headers) > 1 or scheme.lower() != _SCHEME or not credential.strip():
        raise UnauthorizedError(f"The header Authorization is not as it should be. {_HOW}")
    return credential.strip()


def _refuse_in_url(request: Request) -> None:
    """Refuse a credential in the URL, valid or not: proxies, logs and histories store URLs."""
    names = {name.lower() for name in request.query_params}
    if names & _IN_URLS or holds_key(request.url.path) or holds_key(request.url.query):
        raise UnauthorizedError(
            f"A credential does not belong in a URL, which others keep. {_HOW} "
            "Revoke the one that was sent: `lango keys revoke`."
        )
