"""Reads a client's answer to a credential request, and exchanges a consent's code for tokens."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

from google.adk.auth.auth_credential import (
    AuthCredential,
    AuthCredentialTypes,
    HttpAuth,
    HttpCredentials,
    OAuth2Auth,
)
from google.adk.auth.auth_schemes import AuthScheme
from google.adk.auth.auth_tool import AuthConfig
from pydantic import ValidationError

from lango.adk.credentials.kinds import kind_of, state_of
from lango.adk.credentials.token_requests import request_tokens
from lango.adk.credentials.turn import REFERENCE
from lango.core.turns.events import CredentialKind
from lango.core.values import JsonObject
from lango.errors import CredentialRefusedError

logger = logging.getLogger(__name__)

_FORMS: Final[Mapping[CredentialKind, str]] = {
    "oauth2": 'the address that the provider sent the browser to, as {"response_url": "…"}',
    "api_key": 'the key, as {"api_key": "…"}',
    "basic": '{"username": "…", "password": "…"}',
    "bearer": '{"token": "…"}',
    "other": "no credential of a user: configure one in the tool, or change its scheme",
}
_TYPES: Final[Mapping[CredentialKind, AuthCredentialTypes]] = {
    "oauth2": AuthCredentialTypes.OAUTH2,
    "api_key": AuthCredentialTypes.API_KEY,
    "basic": AuthCredentialTypes.HTTP,
    "bearer": AuthCredentialTypes.HTTP,
}
_OF_CONSENT: Final = (AuthCredentialTypes.OAUTH2, AuthCredentialTypes.OPEN_ID_CONNECT)
_TOKENS: Final = ("access_token", "refresh_token", "id_token", "expires_at", "expires_in")
_NOT_TEXT: Final = "The credential has characters that UTF-8 cannot encode."
_WRONG_STATE: Final = "The consent belongs to another request: its `state` is not this call's."
_NOT_GRANTED: Final = (
    "The provider gave no token for this consent: its code is used, expired or of another client, "
    "or the provider did not answer. Open the consent address again."
)


def read_config(text: str) -> AuthConfig:
    """The configuration in its JSON."""
    return AuthConfig.model_validate_json(text)


def reference_to(config: AuthConfig) -> JsonObject:
    """The answer as histories have it: where the credential is, and nothing of it."""
    raw = config.raw_auth_credential
    kind = raw.auth_type if raw else _TYPES.get(kind_of(config), AuthCredentialTypes.HTTP)
    state = state_of(config)
    state_fields: JsonObject = {"oauth2": {"state": state}} if state else {}
    return {"authType": kind.value, "resourceRef": REFERENCE, **state_fields}


def read_credential(config: AuthConfig, payload: Any) -> AuthCredential:
    """The credential in an answer; CredentialRefusedError if the call cannot use it.

    It is an AuthConfig or AuthCredential of ADK, or a short form: see the how-to guide.
    """
    kind = kind_of(config)
    _check_text(payload)
    offered = _of_adk(payload) or _of_short_form(kind, payload)
    credential = None if offered is None else _rebuilt(kind, offered)
    if credential is None:
        raise CredentialRefusedError(f"This call takes {_FORMS[kind]}.")
    if credential.oauth2 is not None:
        _check_state(credential.oauth2, state_of(config))
    return credential


def _of_adk(payload: Any) -> AuthCredential | None:
    if not isinstance(payload, dict):
        return None
    try:
        return AuthConfig.model_validate(payload).exchanged_auth_credential
    except (ValidationError, TypeError):
        pass
    try:
        return AuthCredential.model_validate(payload)
    except (ValidationError, TypeError):
        return None


def _of_short_form(kind: CredentialKind, payload: Any) -> AuthCredential | None:
    fields = cast("JsonObject", payload) if isinstance(payload, dict) else {}
    texts = {name: text for name, text in fields.items() if isinstance(text, str)}
    if isinstance(payload, str):
        names = {"oauth2": "response_url", "api_key": "api_key", "bearer": "token"}
        texts = {names.get(kind, ""): payload}
    auth_type = _TYPES.get(kind)
    if auth_type is None:
        return None
    if kind == "oauth2":
        oauth2 = OAuth2Auth(
            auth_response_uri=texts.get("response_url"),
            auth_code=texts.get("code"),
            state=texts.get("state"),
            access_token=texts.get("access_token"),
        )
        return AuthCredential(auth_type=auth_type, oauth2=oauth2)
    if kind == "api_key":
        return AuthCredential(auth_type=auth_type, api_key=texts.get("api_key"))
    return AuthCredential(
        auth_type=auth_type,
        http=HttpAuth(
            scheme=kind,
            credentials=HttpCredentials(
                username=texts.get("username"),
                password=texts.get("password"),
                token=texts.get("token"),
            ),
        ),
    )


def _rebuilt(kind: CredentialKind, offered: AuthCredential) -> AuthCredential | None:
    """A credential of only the fields that its kind has; None if they are not there.

    ADK looks at `auth_type` and `service_account` of what it gets: with those of a client, it would
    use the worker's own credentials, or send a request to an address of the client's choice.
    """
    auth_type = _TYPES.get(kind)
    if kind == "oauth2" and offered.auth_type in _OF_CONSENT:
        oauth2 = _consent(offered.oauth2)
        return oauth2 and AuthCredential(auth_type=offered.auth_type, oauth2=oauth2)
    if auth_type is None or offered.auth_type != auth_type:
        return None
    if kind == "api_key":
        key = offered.api_key
        return AuthCredential(auth_type=auth_type, api_key=key) if key else None
    http = _http_credentials(kind, offered.http.credentials if offered.http else None)
    http_auth = http and HttpAuth(scheme=kind, credentials=http)
    return http_auth and AuthCredential(auth_type=auth_type, http=http_auth)


def _consent(consent: OAuth2Auth | None) -> OAuth2Auth | None:
    """What a client may say about a consent; its client and addresses are those of the request."""
    if consent is None:
        return None
    if not (consent.access_token or consent.auth_code or _code(consent.auth_response_uri)):
        return None
    names = ("auth_response_uri", "auth_code", "state", *_TOKENS)
    return OAuth2Auth(**{name: getattr(consent, name) for name in names})


def _http_credentials(
    kind: CredentialKind, offered: HttpCredentials | None
) -> HttpCredentials | None:
    if offered is None:
        return None
    if kind == "bearer":
        return HttpCredentials(token=offered.token) if offered.token else None
    if not (offered.username and offered.password):
        return None
    return HttpCredentials(username=offered.username, password=offered.password)


def _check_text(payload: Any) -> None:
    """Refuse text that cannot be stored, as half of a surrogate pair."""
    try:
        json.dumps(payload, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise CredentialRefusedError(_NOT_TEXT) from None


def _query(url: str | None) -> dict[str, list[str]]:
    try:
        return parse_qs(urlsplit(url or "").query)
    except ValueError:
        return {}


def _code(url: str | None) -> str | None:
    return next(iter(_query(url).get("code", ())), None)


def _check_state(consent: OAuth2Auth, state: str | None) -> None:
    """Refuse the consent of another request: an attacker may have started that one."""
    states = [*_query(consent.auth_response_uri).get("state", ())]
    states += [consent.state] if consent.state else []
    if consent.auth_response_uri and not _query(consent.auth_response_uri).get("state"):
        states.append("")
    if any(text != state for text in states):
        raise CredentialRefusedError(_WRONG_STATE)


async def exchanged(private: AuthConfig, credential: AuthCredential) -> AuthConfig:
    """The configuration with a usable credential: a consent's code is exchanged for tokens here.

    Client, token endpoint and PKCE verifier are those of the request, never the answer's.
    """
    config = private.model_copy(deep=True)
    usable = credential.model_copy(deep=True)
    if usable.oauth2 is not None and kind_of(private) == "oauth2":
        usable = await _with_tokens(config, usable.oauth2)
    config.exchanged_auth_credential = usable
    return config


async def _with_tokens(private: AuthConfig, consent: OAuth2Auth) -> AuthCredential:
    credential = private.exchanged_auth_credential or private.raw_auth_credential
    raw = private.raw_auth_credential
    if credential is None or credential.oauth2 is None:
        raise CredentialRefusedError(_NOT_GRANTED)
    complete = credential.model_copy(deep=True)
    oauth2 = cast("OAuth2Auth", complete.oauth2)
    oauth2.client_secret = raw.oauth2.client_secret if raw and raw.oauth2 else None
    if consent.access_token:
        for name in _TOKENS:
            setattr(oauth2, name, getattr(consent, name))
        return complete
    oauth2.auth_code = consent.auth_code or _code(consent.auth_response_uri)
    await _exchange(complete, private.auth_scheme)
    for name in ("auth_code", "auth_response_uri", "code_verifier", "auth_uri", "state"):
        setattr(oauth2, name, None)
    return complete


async def _exchange(credential: AuthCredential, scheme: AuthScheme) -> None:
    """Exchange the code; an error is logged by its name alone: providers repeat the code in it."""
    oauth2 = cast("OAuth2Auth", credential.oauth2)
    form = {"code": oauth2.auth_code, "grant_type": "authorization_code"}
    if oauth2.code_verifier:
        form["code_verifier"] = oauth2.code_verifier
    try:
        await request_tokens(credential, scheme, "fetch_token", **form)
    except Exception as error:  # noqa: BLE001 - of authlib and requests, which lango does not import
        logger.warning("A consent's code was not exchanged: %s", type(error).__name__)
        raise CredentialRefusedError(_NOT_GRANTED) from None
    if not oauth2.access_token:
        raise CredentialRefusedError(_NOT_GRANTED)
