"""Agents whose tools need a user's credential."""

from typing import Any

import httpx
from fastapi.openapi.models import (
    APIKey,
    HTTPBase,
    OAuth2,
    OAuthFlowAuthorizationCode,
    OAuthFlows,
)
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.openapi_tool import OpenAPIToolset
from google.adk.tools.tool_context import ToolContext

from faults.recovery.kill_shapes import agent
from faults.turns.agents import PATIENCE
from faults.turns.workspace import TurnProcess
from lango.adk.apps.load import Root
from lango.adk.durable.run import DurableAgent
from lango.adk.plugins import plugins
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.providers.base import ModelRequest
from lango.store.credentials.store import SqlCredentialStore
from lango.turns.worker import TurnWorker
from tests.support.oauth_provider import CLIENT, OAuthProvider

KEY = "q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s="
PUBLIC_URL = "http://localhost"
CALL = [("files", {"k": "a"})]


def with_keys(process: TurnProcess, *keys: str) -> None:
    """Give the store of a process keys for credentials."""
    process.store.credentials = SqlCredentialStore(
        process.store.database, keys or (KEY,), PUBLIC_URL
    )


def oauth_config(provider: OAuthProvider, **oauth2: Any) -> AuthConfig:
    flow = OAuthFlowAuthorizationCode(
        authorizationUrl=f"{provider.url}/authorize",
        tokenUrl=f"{provider.url}/token",
        scopes={"files": "Read files"},
    )
    given = OAuth2Auth(client_id=CLIENT, client_secret=provider.client_secret, **oauth2)
    return AuthConfig(
        auth_scheme=OAuth2(flows=OAuthFlows(authorizationCode=flow)),
        raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=given),
    )


def key_config() -> AuthConfig:
    return AuthConfig(auth_scheme=APIKey.model_validate({"in": "header", "name": "X-Key"}))


def basic_config() -> AuthConfig:
    return AuthConfig(auth_scheme=HTTPBase(scheme="basic"))


async def read_files(provider: OAuthProvider, credential: AuthCredential) -> dict[str, Any]:
    assert credential.oauth2 is not None
    headers = {"authorization": f"Bearer {credential.oauth2.access_token}"}
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        return (await client.get(f"{provider.url}/api", headers=headers)).json()


def authenticated(provider: OAuthProvider, config: AuthConfig | None = None) -> BaseTool:
    """A tool of ADK's class for functions with a credential."""

    async def files(k: str, credential: AuthCredential) -> dict[str, Any]:
        """Read files."""
        return {"k": k, **await read_files(provider, credential)}

    return AuthenticatedFunctionTool(func=files, auth_config=config or oauth_config(provider))


def asking(provider: OAuthProvider, config: AuthConfig | None = None) -> BaseTool:
    """A function that asks for its credential itself, and caches it as ADK's guide shows."""
    own = config or oauth_config(provider)

    async def files(k: str, tool_context: ToolContext) -> dict[str, Any]:
        """Read files."""
        credential = tool_context.get_auth_response(own)
        if credential is None:
            tool_context.request_credential(own)
            return {"status": "pending"}
        tool_context.state["cached"] = credential.model_dump(mode="json", exclude_none=True)
        if credential.oauth2 is None:
            return {"k": k, "given": credential.model_dump(mode="json", exclude_none=True)}
        return {"k": k, **await read_files(provider, credential)}

    return FunctionTool(files)


def openapi(provider: OAuthProvider) -> BaseToolset:
    """The tools of an OpenAPI document."""
    config = oauth_config(provider)
    operation = {
        "operationId": "files",
        "description": "Read files.",
        "parameters": [
            {"name": "k", "in": "query", "required": True, "schema": {"type": "string"}}
        ],
        "responses": {"200": {"description": "Files."}},
    }
    return OpenAPIToolset(
        spec_dict={
            "openapi": "3.1.0",
            "info": {"title": "Files", "version": "1"},
            "servers": [{"url": provider.url}],
            "paths": {"/api": {"get": operation}},
        },
        auth_scheme=config.auth_scheme,
        auth_credential=config.raw_auth_credential,
        allow_private_network_access=True,
    )


class FileToolset(BaseToolset):
    """A toolset that needs a credential to list its tools, as an MCP server's does."""

    def __init__(self, provider: OAuthProvider) -> None:
        super().__init__()
        self._provider = provider
        self._config = oauth_config(provider)

    def get_auth_config(self) -> AuthConfig | None:
        return self._config

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        provider, found = self._provider, None
        if readonly_context is not None:
            known = readonly_context.get_credential(self._config.credential_key)
            found = known and known.oauth2.access_token

        async def files(k: str) -> dict[str, Any]:
            """Read files."""
            async with httpx.AsyncClient(timeout=PATIENCE) as client:
                headers = {"authorization": f"Bearer {found}"}
                return {"k": k, **(await client.get(f"{provider.url}/api", headers=headers)).json()}

        return [FunctionTool(files)]


def outputs(request: ModelRequest) -> str:
    """What the model has of its tools, as its answer."""
    given = [(c.name, c.output) for m in request.messages if m.is_tool for c in m.tool_calls]
    return "; ".join(f"{name} gave {output}" for name, output in given)


def clerk(*tools: Any) -> Root:
    return agent("clerk", CALL, outputs, tools=list(tools))


def worker(process: TurnProcess, root: Root) -> TurnWorker:
    sessions = SessionServiceAdapter(process.store)
    runner = AgentRunner(root, sessions, plugins=plugins(process.store), name=process.workspace.app)
    return TurnWorker(
        process.store, process.engine, {process.workspace.app: DurableAgent(runner, process.store)}
    )
