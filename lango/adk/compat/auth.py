"""The methods by which ADK's tools request and read credentials; they are ADK's own interface."""

from __future__ import annotations

from typing import Any, Protocol

from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_handler import AuthHandler
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.openapi_tool.openapi_spec_parser.tool_auth_handler import (
    ToolContextCredentialStore,
)

_generate = AuthHandler.generate_auth_request
_parse_and_store = AuthHandler.parse_and_store_auth_response
_has = AuthHandler.has_auth_response
_get = AuthHandler.get_auth_response
_stored = ToolContextCredentialStore.get_credential
_store = ToolContextCredentialStore.store_credential


class CredentialSource(Protocol):
    """What answers tools in place of ADK's session state."""

    def request(self, config: AuthConfig) -> AuthConfig:
        """The request that a client may see."""
        ...

    def get(self, name: str | None) -> AuthCredential | None:
        """The credential of this name."""
        ...


class CurrentSource(Protocol):
    """Finds the source of the running turn."""

    def __call__(self) -> CredentialSource | None:
        """The source; None outside of a turn: ADK then does as it does."""
        ...


def adk_request(config: AuthConfig) -> AuthConfig:
    """The request as ADK makes it: without configured secrets, but with its PKCE verifier."""
    return _generate(AuthHandler(config))


def replace_auth(current: CurrentSource) -> None:
    """Patch ADK's methods, so that the source of a turn answers instead of its session's state."""

    def generate_auth_request(self: AuthHandler) -> AuthConfig:
        source = current()
        return _generate(self) if source is None else source.request(self.auth_config)

    async def parse_and_store_auth_response(self: AuthHandler, state: Any) -> None:
        if current() is None:
            await _parse_and_store(self, state)

    # Clients can set a session's state, so a turn never reads credentials there.
    def has_auth_response(self: AuthHandler, state: Any) -> bool:
        source = current()
        if source is None:
            return _has(self, state)
        return source.get(self.auth_config.credential_key) is not None

    def get_auth_response(self: AuthHandler, state: Any) -> AuthCredential | None:
        source = current()
        return _get(self, state) if source is None else source.get(self.auth_config.credential_key)

    def get_credential(
        self: ToolContextCredentialStore, auth_scheme: Any, auth_credential: Any
    ) -> AuthCredential | None:
        return _stored(self, auth_scheme, auth_credential) if current() is None else None

    def store_credential(
        self: ToolContextCredentialStore, key: str, auth_credential: AuthCredential | None
    ) -> None:
        if current() is None:
            _store(self, key, auth_credential)

    AuthHandler.generate_auth_request = generate_auth_request
    AuthHandler.parse_and_store_auth_response = parse_and_store_auth_response
    AuthHandler.has_auth_response = has_auth_response
    AuthHandler.get_auth_response = get_auth_response
    ToolContextCredentialStore.get_credential = get_credential
    ToolContextCredentialStore.store_credential = store_credential
