"""Requests to the token endpoints of OAuth providers: without redirects, short and in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any, Final, Literal

from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_schemes import AuthScheme
from google.adk.auth.oauth2_credential_util import (
    create_oauth2_session,
    update_credential_with_tokens,
)

MAX_SECONDS: Final = 20.0
"""For the whole request; ADK's own limit is for each part that arrives."""
MAX_BYTES: Final = 200_000
_PART: Final = 10_000
_UNBOUNDED: Final = "The answer of the token endpoint is too long, or takes too long."

Grant = Literal["fetch_token", "refresh_token"]
"""The method of ADK's OAuth session that sends the request."""


async def request_tokens(
    credential: AuthCredential, scheme: AuthScheme, grant: Grant, **form: Any
) -> None:
    """Ask the scheme's token endpoint for tokens, and put them into the credential.

    The request has secrets, so a redirect is an error. Errors are those of authlib and requests, or
    TimeoutError. ValueError if the credential has no client, or the scheme no token endpoint.
    """
    client, address = create_oauth2_session(scheme, credential)
    if client is None or address is None:
        raise ValueError("The request for a credential has no client, or no token endpoint.")
    send = partial(_send, client, grant, address, time.monotonic() + MAX_SECONDS, form)
    async with asyncio.timeout(MAX_SECONDS):
        tokens = await asyncio.to_thread(send)
    update_credential_with_tokens(credential, tokens)


def _send(client: Any, grant: Grant, address: str, deadline: float, form: dict[str, Any]) -> Any:
    bounds = {"allow_redirects": False, "hooks": {"response": _reading(deadline)}}
    with client:
        return getattr(client, grant)(address, **form, **bounds)


def _reading(deadline: float) -> Callable[..., None]:
    """A hook of requests that reads an answer's body within the bounds."""

    def read(response: Any, **_: Any) -> None:
        body = BytesIO()
        while part := response.raw.read1(_PART, decode_content=True):
            body.write(part)
            if body.tell() > MAX_BYTES or time.monotonic() > deadline:
                response.close()
                raise OSError(_UNBOUNDED)
        body.seek(0)
        response.raw = body

    return read
