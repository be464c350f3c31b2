"""What ADK asks for in a credential request, and the secrets in a credential."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from secrets import token_urlsafe
from typing import Any, Final
from urllib.parse import urlsplit

from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_tool import AuthConfig, AuthToolArguments
from google.adk.events.event import Event
from google.genai import types
from pydantic import ValidationError

from lango.core.turns.events import CredentialKind, CredentialRequest

CREDENTIAL: Final = "adk_request_credential"
"""The call by which ADK asks for a credential."""
_OF_TOOLSET: Final = "_adk_toolset_auth_"
"""ADK's prefix for the call id of a toolset that needs a credential to list its tools."""
_CALL_ID: Final = ("functionCallId", "function_call_id")
_OF_SCHEME: Final[Mapping[str, CredentialKind]] = {
    "oauth2": "oauth2",
    "openIdConnect": "oauth2",
    "apiKey": "api_key",
}
_STATE: Final = re.compile(r"(?i)state(=|$)")
"""The `state` among the parameters of an address."""
_OAUTH_SECRETS: Final = (
    "access_token",
    "refresh_token",
    "id_token",
    "client_secret",
    "code_verifier",
    "auth_code",
    "auth_response_uri",
)
_HTTP_SECRETS: Final = ("password", "token")


def kind_of(config: AuthConfig) -> CredentialKind:
    """The kind of credential that a scheme takes."""
    scheme = config.auth_scheme
    name = str(getattr(scheme.type_, "value", scheme.type_))
    if name == "http":
        http_scheme = str(getattr(scheme, "scheme", "")).lower()
        return "basic" if http_scheme == "basic" else "bearer"
    return _OF_SCHEME.get(name, "other")


def asked_call_id(call: types.FunctionCall) -> str:
    """The id of the tool call that a credential request is for."""
    arguments = call.args or {}
    return str(next((arguments[name] for name in _CALL_ID if name in arguments), ""))


def asked_config(call: types.FunctionCall) -> AuthConfig | None:
    """The AuthConfig in a credential request; None if it cannot be read."""
    try:
        return AuthToolArguments.model_validate(call.args or {}).auth_config
    except (ValidationError, TypeError):
        return None


def asked_configs(events: Iterable[Event]) -> dict[str, AuthConfig]:
    """The AuthConfig of every credential request in a session, by the request's id."""
    return {
        call.id or "": config
        for event in events
        for call in event.get_function_calls()
        if is_request(event, call) and (config := asked_config(call)) is not None
    }


def is_request(event: Event, call: types.FunctionCall) -> bool:
    """Whether ADK asks for a credential by this call; a model may write one of the same name.

    ADK marks its own as long-running. It marks no call of a model to a tool that there is not.
    """
    return call.name == CREDENTIAL and call.id in (event.long_running_tool_ids or ())


def state_of(config: AuthConfig) -> str | None:
    """The OAuth state of a request."""
    exchanged = config.exchanged_auth_credential
    return exchanged.oauth2.state if exchanged and exchanged.oauth2 else None


def has_address(config: AuthConfig) -> bool:
    """Whether a tool brings the consent address of its request itself."""
    credentials = (config.exchanged_auth_credential, config.raw_auth_credential)
    return any(
        credential.oauth2.auth_uri for credential in credentials if credential and credential.oauth2
    )


def give_new_state(config: AuthConfig) -> None:
    """Put a new random state into a request and its address.

    A state that a tool chose may be the same in another request, of another user.
    """
    exchanged = config.exchanged_auth_credential
    if kind_of(config) != "oauth2" or exchanged is None or exchanged.oauth2 is None:
        return
    exchanged.oauth2.state = token_urlsafe(32)
    address = urlsplit(exchanged.oauth2.auth_uri or "")
    parameters = [
        parameter
        for parameter in address.query.split("&")
        if parameter and not _STATE.match(parameter)
    ]
    query = "&".join([*parameters, f"state={exchanged.oauth2.state}"])
    exchanged.oauth2.auth_uri = address._replace(query=query).geturl()


def credential_request_of(
    event: Event, call: types.FunctionCall, tools: Mapping[str, str]
) -> CredentialRequest | None:
    """The credential that a call asks a user for; `tools` are tool names by their calls' ids."""
    config = asked_config(call) if is_request(event, call) else None
    if config is None:
        return None
    call_id = asked_call_id(call)
    exchanged = config.exchanged_auth_credential
    return CredentialRequest(
        id=call.id or "",
        call_id=call_id,
        name=tools.get(call_id) or call_id.removeprefix(_OF_TOOLSET),
        kind=kind_of(config),
        auth_uri=exchanged.oauth2.auth_uri if exchanged and exchanged.oauth2 else None,
        agent=event.author,
    )


def secrets_of(credential: AuthCredential | None) -> Iterator[str]:
    """The texts of a credential that must not be stored in clear or shown."""
    if credential is None:
        return
    values: list[Any] = [credential.api_key]
    if credential.oauth2 is not None:
        values += [getattr(credential.oauth2, name) for name in _OAUTH_SECRETS]
    if credential.http is not None:
        values += [getattr(credential.http.credentials, name) for name in _HTTP_SECRETS]
        values += list((credential.http.additional_headers or {}).values())
    if credential.service_account and credential.service_account.service_account_credential:
        values.append(credential.service_account.service_account_credential.private_key)
    yield from (value for value in values if isinstance(value, str))


def without_secrets(config: AuthConfig) -> AuthConfig:
    """A copy of a request that has no text of `secrets_of`."""
    public_config = config.model_copy(deep=True)
    for credential in (public_config.raw_auth_credential, public_config.exchanged_auth_credential):
        if credential is None:
            continue
        credential.api_key = None
        credential.service_account = None
        for name in _OAUTH_SECRETS if credential.oauth2 else ():
            setattr(credential.oauth2, name, None)
        if credential.http is not None:
            credential.http.additional_headers = None
            for name in _HTTP_SECRETS:
                setattr(credential.http.credentials, name, None)
    return public_config


def with_client_secret(
    credential: AuthCredential | None, configured: AuthCredential | None
) -> AuthCredential | None:
    """The credential with the tool's own client secret, which a refresh needs."""
    if credential is None or configured is None:
        return credential
    if credential.oauth2 is None or configured.oauth2 is None:
        return credential
    complete = credential.model_copy(deep=True)
    if complete.oauth2 is not None and configured.oauth2.client_secret:
        complete.oauth2.client_secret = configured.oauth2.client_secret
    return complete
