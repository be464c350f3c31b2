"""ADK's credential service on the session store's database."""

from __future__ import annotations

import warnings

from google.adk.agents.callback_context import CallbackContext
from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_tool import AuthConfig
from google.adk.auth.credential_service.base_credential_service import BaseCredentialService

from lango.adk.credentials.refresh import is_due
from lango.adk.credentials.turn import TurnCredentials, turn_credentials
from lango.store.credentials.store import Owner
from lango.store.sessions.store import SqlSessionStore


class SqlCredentialService(BaseCredentialService):
    """Encrypted credentials beside the sessions, by tenant, app, user and credential key.

    `store` needs `credential_keys`; without them every operation raises CredentialsDisabledError.
    """

    def __init__(self, store: SqlSessionStore, *, tenant: str = "") -> None:
        with warnings.catch_warnings():  # it is experimental, so lango pins ADK
            warnings.simplefilter("ignore", UserWarning)
            super().__init__()
        self.store = store
        self.tenant = tenant

    def _credentials(self, context: CallbackContext) -> TurnCredentials:
        """The running turn's credentials; outside of a turn, those of the context's user."""
        current = turn_credentials.get()
        if current is not None:
            return current
        owner = Owner(self.tenant, context.session.app_name, context.user_id)
        return TurnCredentials(self.store.credentials, owner, 0, context.invocation_id)

    async def load_credential(
        self, auth_config: AuthConfig, callback_context: CallbackContext
    ) -> AuthCredential | None:
        """The user's credential, refreshed if it expires within a minute; None if there is none.

        It has no refresh token and no client secret: lango refreshes it, and not ADK.
        """
        credentials = self._credentials(callback_context)
        await credentials.read(auth_config.credential_key or "")
        await credentials.refresh()
        credential = credentials.get(auth_config.credential_key)
        if credential is not None and credential.oauth2 is not None and await is_due(credential):
            # Otherwise ADK would refresh it.
            credential.oauth2.expires_at = credential.oauth2.expires_in = None
        return credential

    async def save_credential(
        self, auth_config: AuthConfig, callback_context: CallbackContext
    ) -> None:
        """Store the exchanged credential of a configuration."""
        name = auth_config.credential_key or ""
        await self._credentials(callback_context).save(name, auth_config)
