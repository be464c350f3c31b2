"""The credentials of one claimed turn: loaded, refreshed, requested, and kept out of histories.

ADK keeps credentials in the session's state and history. In a turn of lango, the encrypted store
holds them, and tools read them from this object by the methods that ADK gives them.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from typing import Final

from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_tool import AuthConfig
from pydantic import ValidationError

from lango.adk.compat.auth import adk_request, replace_auth
from lango.adk.credentials.kinds import (
    give_new_state,
    has_address,
    kind_of,
    secrets_of,
    state_of,
    without_secrets,
)
from lango.adk.credentials.masking import Secrets
from lango.adk.credentials.refresh import is_due, is_expired, refresh_token_of, refreshed
from lango.store.credentials.store import (
    ConsentRequest,
    Owner,
    SqlCredentialStore,
    StoredCredential,
    fitted_name,
)

logger = logging.getLogger(__name__)

REFERENCE: Final = "lango:stored"
"""The `resourceRef` of an answer whose credential is in the store."""
_S256: Final = "S256"
_POLL: Final = 0.1
"""Seconds between two looks at a credential that another turn refreshes."""


class TurnCredentials:
    """The source of credentials for the tools of a turn."""

    def __init__(self, store: SqlCredentialStore, owner: Owner, session_pk: int, turn: str) -> None:
        self.store = store
        self.owner = owner
        self.secrets = Secrets()
        self._session_pk = session_pk
        self._turn = turn
        self._configs: dict[str, AuthConfig] = {}
        self._versions: dict[str, int] = {}
        self._requests: dict[str, AuthConfig] = {}
        """Requests that are not stored yet, by OAuth state."""
        self._states: set[str] = set()
        """The OAuth states of all requests of this turn."""
        self._refreshing = asyncio.Lock()

    async def load(self, *, has_begun: bool = False) -> None:
        """Load the user's credentials, if there are keys.

        For a turn that has begun, also the states of its requests: ADK may ask again with one.
        """
        if not self.store.enabled:
            return
        for stored in await self.store.of_owner(self.owner):
            self._learn(stored)
        if has_begun:
            self._states |= await self.store.states(self._session_pk, self._turn)

    def _learn(self, stored: StoredCredential) -> AuthConfig | None:
        try:
            config = AuthConfig.model_validate_json(stored.text)
        except ValidationError:
            logger.warning("A stored credential of user %s is not readable.", self.owner.user_id)
            return None
        self._versions[stored.name] = stored.version
        self._note(stored.name, config)
        return config

    def _note(self, name: str, config: AuthConfig) -> None:
        self._configs[name] = config
        self._hide(config)

    def _forget(self, name: str) -> None:
        self._configs.pop(name, None)
        self._versions.pop(name, None)

    def _hide(self, config: AuthConfig) -> None:
        self.secrets.add(secrets_of(config.raw_auth_credential))
        self.secrets.add(secrets_of(config.exchanged_auth_credential))

    def get(self, name: str | None) -> AuthCredential | None:
        """A copy of the user's credential of this name, without refresh token and client secret.

        What a tool refreshed itself would not be stored, and the stored refresh token would be a
        used one. An expired token that cannot be refreshed counts as not given.
        """
        config = self._configs.get(fitted_name(name or ""))
        credential = config.exchanged_auth_credential if config else None
        if config is None or credential is None:
            return None
        if is_expired(credential) and not refresh_token_of(config):
            return None
        usable = credential.model_copy(deep=True)
        if usable.oauth2 is not None:
            usable.oauth2.refresh_token = None
            usable.oauth2.client_secret = None
        return usable

    def request(self, config: AuthConfig) -> AuthConfig:
        """ADK's request, without secrets; `flush` stores what exchanging its code needs.

        CredentialsDisabledError if there is no key to encrypt the answer with.
        """
        self.store.require()
        if state_of(config) in self._states:  # a Workflow's node asks with the tool's request
            return without_secrets(config)
        request = config.model_copy(deep=True)
        raw = request.raw_auth_credential.oauth2 if request.raw_auth_credential else None
        if raw is not None and not raw.auth_uri:
            raw.redirect_uri = raw.redirect_uri or self.store.redirect_uri
            raw.code_challenge_method = raw.code_challenge_method or _S256
        private = adk_request(request)
        if has_address(request):
            give_new_state(private)
        private.raw_auth_credential = request.raw_auth_credential
        self._hide(private)
        state = state_of(private)
        if state:
            self._states.add(state)
            self._requests[state] = private
        return without_secrets(private)

    async def flush(self) -> None:
        """Store new requests, before the event that asks is stored: so an answer finds them."""
        while self._requests:
            state, config = next(iter(self._requests.items()))
            await self.store.add_request(
                ConsentRequest(state, self.owner, self._session_pk, self._turn, dumped(config))
            )
            del self._requests[state]

    async def refresh(self) -> None:
        """Refresh the OAuth credentials that expire within a minute.

        One turn at a time: providers may revoke all tokens if a refresh token is used twice.
        """
        if not self._configs:
            return
        async with self._refreshing:
            for name in list(self._configs):
                await self._refresh(name)

    async def _refresh(self, name: str) -> None:
        """Refresh a credential, or wait until the turn that refreshes it has stored it."""
        while (config := self._configs.get(name)) is not None:
            if not refresh_token_of(config) or not await is_due(config.exchanged_auth_credential):
                return
            version = self._versions.get(name)
            if version is not None:
                if await self.store.claim_refresh(self.owner, name, version):
                    await self._refresh_claimed(name, config, version)
                    return
                await asyncio.sleep(_POLL)
            await self.read(name)

    async def _refresh_claimed(self, name: str, config: AuthConfig, version: int) -> None:
        outcome = await refreshed(config)
        if isinstance(outcome, AuthCredential):
            update = {"exchanged_auth_credential": outcome}
            await self.save(name, config.model_copy(deep=True, update=update))
            return
        credential = config.exchanged_auth_credential
        if outcome == "refused" and credential is not None and is_expired(credential):
            await self.store.delete_version(self.owner, name, version)
            await self.read(name)  # another consent may have replaced it
            return
        await self.store.release_refresh(self.owner, name, version)

    async def read(self, name: str) -> AuthConfig | None:
        """The stored credential of this name, as it is now."""
        name = fitted_name(name)
        stored = await self.store.get(self.owner, name)
        config = None if stored is None else self._learn(stored)
        if config is None:
            self._forget(name)
        return config

    async def save(self, name: str, config: AuthConfig) -> None:
        """Store a credential; one that was read is replaced only if it has not changed since."""
        name = fitted_name(name)
        version = self._versions.get(name)
        self._note(name, config)
        if version is None:
            await self.store.save(self.owner, name, dumped(config), kind_of(config))
            return
        newer = await self.store.replace(self.owner, name, dumped(config), version)
        if newer is not None:
            self._versions[name] = newer
        else:  # replaced or deleted in the meantime: it stays so
            await self.read(name)


def dumped(config: AuthConfig) -> str:
    """A configuration as the JSON that is encrypted."""
    return config.model_dump_json(by_alias=True, exclude_none=True)


turn_credentials: ContextVar[TurnCredentials | None] = ContextVar("lango_credentials", default=None)


def install_patch() -> None:
    """Patch ADK's methods (idempotent)."""
    replace_auth(turn_credentials.get)
