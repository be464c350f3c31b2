"""Reads an OpenAPI document with ADK's parser: its operations, their server and credentials."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urljoin

import yaml
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.auth.auth_credential import (
    AuthCredential,
    AuthCredentialTypes,
    HttpAuth,
    HttpCredentials,
    OAuth2Auth,
)
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.openapi_tool.openapi_spec_parser.openapi_spec_parser import (
    OpenApiSpecParser,
    ParsedOperation,
)
from google.adk.tools.openapi_tool.openapi_spec_parser.operation_parser import OperationParser
from google.adk.tools.openapi_tool.openapi_spec_parser.rest_api_tool import RestApiTool

from lango.adk.credentials.kinds import kind_of
from lango.adk.openapi.settings import ApiAuth, OpenApiDocument
from lango.core.values import JsonObject
from lango.errors import InvalidToolError
from lango.tools.checked_http import Origin, WebRules, client_factory
from lango.tools.schema import check_parameters

_SAFE: Final = frozenset({"get", "head", "options"})
"""The methods that change nothing, and may be repeated."""
_ADDRESS_CHECK: Final = "allow_private_network_access"
"""ADK's own check (from 2.13), which knows no allowed networks; the client checks addresses."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation that can be a tool."""

    id: str  # its operationId
    tool: RestApiTool
    parameters: JsonObject

    @property
    def is_safe(self) -> bool:
        """Whether a call changes nothing."""
        return self.tool.endpoint.method.lower() in _SAFE

    @property
    def description(self) -> str:
        """What the model reads about it."""
        endpoint = self.tool.endpoint
        return self.tool.description or f"{endpoint.method.upper()} {endpoint.path}"


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """The operations of a document that its agents may use."""

    operations: tuple[Operation, ...] = ()
    problems: tuple[str, ...] = ()


def read_document(document: OpenApiDocument, text: str) -> ReadDocument:
    """The chosen operations; InvalidToolError if the document cannot be used at all.

    Takes seconds for a document of megabytes.
    """
    definitions = {
        operation.operation.operationId or "": operation for operation in _parsed(document, text)
    }
    problems = [
        f"has no operation {name!r}; there are: {', '.join(sorted(definitions))}."
        for name in sorted(document.named_operations - definitions.keys())
    ]
    operations: list[Operation] = []
    for name in sorted(definitions):  # a changed order would invalidate the model's prompt cache
        if document.operations is None or name in document.operations:
            try:
                operations.append(_operation(document, name, definitions[name]))
            except (InvalidToolError, ValueError) as error:
                problems.append(f"has the operation {name!r}, which is left out. {error}")
    return ReadDocument(tuple(operations), tuple(problems))


def _parsed(document: OpenApiDocument, text: str) -> Sequence[ParsedOperation]:
    try:
        loaded: Any = json.loads(text) if text.lstrip().startswith("{") else yaml.safe_load(text)
        if not isinstance(loaded, dict) or "openapi" not in loaded:
            raise ValueError("it has no `openapi` version at its top")
        return OpenApiSpecParser().parse(cast("dict[str, Any]", loaded))
    except Exception as error:
        raise InvalidToolError(
            f"The OpenAPI document {document.name!r} cannot be used: {error}"
        ) from error


def _operation(document: OpenApiDocument, name: str, parsed: ParsedOperation) -> Operation:
    """The operation with its server, credential and limits; ValueError if it cannot be called."""
    endpoint, auth = parsed.endpoint, document.auth
    endpoint.base_url = _base_url(document, endpoint.base_url or "")
    rules = WebRules(Origin.of(endpoint.base_url), document.networks, document.timeout)
    options: dict[str, Any] = {"httpx_client_factory": client_factory(rules)}
    if _ADDRESS_CHECK in inspect.signature(RestApiTool.from_parsed_operation).parameters:
        options[_ADDRESS_CHECK] = True
    if auth is not None and auth.header:
        options["header_provider"] = _always({auth.header: auth.secret})
    tool = RestApiTool.from_parsed_operation(parsed, **options)
    if auth is None or auth.header:
        tool.auth_scheme = None
    elif tool.auth_scheme is not None:
        _authenticate(document, auth, tool)
    schema: JsonObject = OperationParser(parsed.operation).get_json_schema()
    schema.pop("title", None)
    check_parameters(name, schema)
    return Operation(name, tool, schema)


def _always(headers: dict[str, str]) -> Callable[[ReadonlyContext], dict[str, str]]:
    """A provider of the same headers for every call."""
    return lambda context: headers  # noqa: ARG005 - as ADK calls it


def _base_url(document: OpenApiDocument, stated: str) -> str:
    """Where calls go.

    A document from the network cannot name another origin than its own: it would get the secrets.
    """
    if document.base_url:
        return document.base_url
    url = urljoin(document.url, stated or "/") if document.url else stated
    try:
        origin = Origin.of(url)
    except ValueError:
        raise InvalidToolError(
            f"The document names no server that calls can go to ({stated!r}): set `base_url`."
        ) from None
    if document.url and origin != Origin.of(document.url):
        raise InvalidToolError(
            f"The document names a server elsewhere, {url}: to allow that, set it as `base_url`."
        )
    return url


def _authenticate(document: OpenApiDocument, auth: ApiAuth, tool: RestApiTool) -> None:
    """Give the operation its credential, in the form of its security scheme."""
    scheme: Any = tool.auth_scheme
    kind = kind_of(AuthConfig(auth_scheme=scheme, credential_key=document.name))
    name = "" if kind != "api_key" else f":{scheme.name}"
    tool.configure_credential_key(f"openapi:{document.name}:{kind}{name}")
    if auth.secret:
        tool.configure_auth_credential(_shared(auth, kind))
    elif kind == "oauth2":
        _consent(document, auth, scheme)
        client = OAuth2Auth(client_id=auth.client_id, client_secret=auth.client_secret or None)
        tool.configure_auth_credential(
            AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=client)
        )
    elif not auth.per_user:
        raise InvalidToolError(
            "It takes no OAuth token: set `per_user`, so that users are asked for its credential."
        )


def _shared(auth: ApiAuth, kind: str) -> AuthCredential:
    """The credential of all users."""
    if kind == "api_key":
        return AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key=auth.secret)
    if kind == "basic":
        if not auth.username:
            raise InvalidToolError("It takes a user name and a password: set `username`.")
        credentials = HttpCredentials(username=auth.username, password=auth.secret)
        http = HttpAuth(scheme="basic", credentials=credentials)
    else:
        http = HttpAuth(scheme="bearer", credentials=HttpCredentials(token=auth.secret))
    return AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=http)


def _consent(document: OpenApiDocument, auth: ApiAuth, scheme: Any) -> None:
    """Set and check the addresses of the consent; the client's secret goes to the second."""
    flow = getattr(getattr(scheme, "flows", None), "authorizationCode", None)
    if not auth.client_id or flow is None:
        needed = "a `client_id`" if flow else "an authorization code flow in the document"
        raise InvalidToolError(f"It takes an OAuth token, which needs {needed}.")
    flow.authorizationUrl = auth.authorization_url or flow.authorizationUrl
    flow.tokenUrl = auth.token_url or flow.tokenUrl
    if flow.refreshUrl:
        flow.refreshUrl = flow.tokenUrl
    for setting, url in (
        ("authorization_url", flow.authorizationUrl),
        ("token_url", flow.tokenUrl),
    ):
        is_own = bool(getattr(auth, setting)) or document.file is not None
        if not is_own and Origin.of(url) != Origin.of(document.url or ""):
            raise InvalidToolError(
                f"The document names an OAuth server elsewhere, {url}: to allow that, set it as "
                f"`{setting}`."
            )
