"""Refreshes an OAuth credential, and tells a refusal from a provider that cannot be reached."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final, Literal

from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_tool import AuthConfig
from google.adk.auth.oauth2_credential_util import (
    create_oauth2_session,
    update_credential_with_tokens,
)
from google.adk.auth.refresher.oauth2_credential_refresher import OAuth2CredentialRefresher

from lango.adk.credentials.kinds import with_client_secret

logger = logging.getLogger(__name__)

LONGEST_REFRESH: Final = 20.0
"""Seconds after which a provider counts as not reachable."""
_NOT_THE_TOKEN_S: Final = frozenset(
    {
        "invalid_client",
        "unauthorized_client",
        "unsupported_grant_type",
        "server_error",
        "temporarily_unavailable",
        "slow_down",
    }
)
"""OAuth errors that another consent of the user would not end."""


async def is_due(credential: AuthCredential | None) -> bool:
    """Whether a token expires within a minute."""
    return credential is not None and await OAuth2CredentialRefresher().is_refresh_needed(
        credential
    )


def is_expired(credential: AuthCredential) -> bool:
    """Whether a token has expired."""
    expires = credential.oauth2.expires_at if credential.oauth2 else None
    return expires is not None and expires <= time.time()


def refresh_token_of(config: AuthConfig) -> str | None:
    """The refresh token of a stored credential."""
    credential = config.exchanged_auth_credential
    return credential.oauth2.refresh_token if credential and credential.oauth2 else None


async def refreshed(config: AuthConfig) -> AuthCredential | Literal["refused"] | None:
    """The credential with new tokens; "refused" if the refresh token is dead, None to try later."""
    credential = with_client_secret(config.exchanged_auth_credential, config.raw_auth_credential)
    if credential is None:
        return None
    fresh = credential.model_copy(deep=True)
    client, address = create_oauth2_session(config.auth_scheme, fresh)
    if client is None:
        return None
    session: Any = client
    ask = asyncio.to_thread(
        session.refresh_token,
        url=address,
        refresh_token=refresh_token_of(config),
        allow_redirects=False,
    )
    try:
        async with asyncio.timeout(LONGEST_REFRESH):
            tokens = await ask
    except Exception as error:  # noqa: BLE001 - of authlib and requests, which lango does not import
        code = getattr(error, "error", None)
        logger.warning(
            "An OAuth token was not refreshed: %s %s",
            type(error).__name__,
            code if isinstance(code, str) and code.isidentifier() else "",
        )
        is_refusal = isinstance(code, str) and code not in _NOT_THE_TOKEN_S
        return "refused" if is_refusal else None
    update_credential_with_tokens(fresh, tokens)
    return fresh if fresh.oauth2 and fresh.oauth2.access_token else None
