"""Configures an OpenAPI document: where it is, its operations, and their credentials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lango.errors import InvalidToolError

if TYPE_CHECKING:
    from google.adk.tools.base_toolset import BaseToolset

DEFAULT_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class ApiAuth:
    """The credential of an API's calls, sent as the document says: one for all users, or theirs."""

    secret: str = field(default="", repr=False)
    """The API key, token or password of all users."""
    username: str = ""
    """With `secret`, for HTTP basic authentication."""
    header: str = ""
    """With `secret`: the header that is the secret, whatever the document says."""
    per_user: bool = False
    """Whether each user is asked for a credential."""
    client_id: str = ""
    """The OAuth client with which each user consents."""
    client_secret: str = field(default="", repr=False)
    authorization_url: str = ""
    """Where users consent; by default the document's."""
    token_url: str = ""
    """Where codes are exchanged for tokens; by default the document's."""

    @property
    def of_user(self) -> bool:
        """Whether each user gives a credential."""
        return self.per_user or bool(self.client_id)

    def problems(self) -> Iterator[str]:
        """What is wrong with these settings."""
        if bool(self.secret) == self.of_user:
            yield "has an auth that needs either a secret, or per_user or a client_id."
        if (self.username or self.header) and not self.secret:
            yield "has an auth with a username or a header, which need a secret."
        if self.username and self.header:
            yield "has an auth with a username and a header: give one of them."
        if (self.client_secret or self.token_url or self.authorization_url) and not self.client_id:
            yield "has an auth with settings of an OAuth client, which need a client_id."


@dataclass(frozen=True, slots=True)
class OpenApiDocument:
    """An OpenAPI 3 document of an API, and the operations that agents get as tools."""

    name: str
    """Its name in logs, and for models if a tool's name is in use."""
    file: str | Path | None = None
    """The document as JSON or YAML."""
    url: str | None = None
    """Where the document is, instead of a file; fetched when a turn first needs it."""
    base_url: str | None = None
    """Where calls go; by default the document's first server."""
    operations: tuple[str, ...] | None = None
    """The only operations to offer, by `operationId`; None for all of them."""
    require_confirmation: bool | tuple[str, ...] = False
    """Whether a person must approve a call: of every operation, or of these."""
    auth: ApiAuth | None = None
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that may be reached although they are not public."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds for each call, and for fetching the document."""
    prefix: str = ""
    """Prepended to the tools' names, with an underscore."""

    def __post_init__(self) -> None:
        """Raise InvalidToolError now for settings that would fail during a conversation."""
        problem = next(self._problems(), None)
        if problem:
            raise InvalidToolError(f"The OpenAPI document {self.name!r} {problem}")

    def _problems(self) -> Iterator[str]:
        if not self.name:
            yield "needs a name."
        if (self.file is None) == (self.url is None):
            yield "needs either a file or a url."
        for url in filter(None, (self.url, self.base_url)):
            if urlsplit(url).scheme not in {"http", "https"}:
                yield f"has the address {url}, which begins with neither http:// nor https://."
        if not self.timeout > 0:
            yield f"has a timeout of {self.timeout}: give seconds above 0."
        if self.auth is not None:
            yield from self.auth.problems()

    def requires_confirmation(self, operation: str) -> bool:
        """Whether a person must approve calls of this operation."""
        return (
            self.require_confirmation
            if isinstance(self.require_confirmation, bool)
            else operation in self.require_confirmation
        )

    @property
    def named_operations(self) -> set[str]:
        """The operations that the settings name."""
        confirmed = self.require_confirmation
        return {*(self.operations or ()), *(() if isinstance(confirmed, bool) else confirmed)}


def openapi_toolset(document: OpenApiDocument) -> BaseToolset:
    """The document's operations as tools for an agent; works in any ADK app.

    A file is read now: InvalidToolError if it cannot be used.
    """
    from lango.adk.openapi.toolset import OperationToolset

    return OperationToolset(document)
