"""No table has a user's token in clear, wherever code of the app puts it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.adk.agents.context import Context
from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_handler import AuthHandler
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, FunctionNode, Workflow

from faults.recovery.kill_shapes import agent
from faults.turns.workspace import TurnProcess
from lango.adk.apps.load import Root
from tests.support.credential_agents import CALL, oauth_config, outputs, with_keys, worker
from tests.support.credential_turns import all_rows, asked, consent, ended
from tests.support.oauth_provider import OAuthProvider, oauth_provider

pytestmark = pytest.mark.filterwarnings(
    # ADK's AuthConfig calls its own deprecated method.
    "ignore:This method is deprecated. Use credential_key instead:DeprecationWarning"
)


@pytest.fixture
def provider() -> Iterator[OAuthProvider]:
    with oauth_provider() as running:
        yield running


def token_of(credential: AuthCredential | None) -> str:
    return (credential.oauth2.access_token if credential and credential.oauth2 else None) or ""


def with_callback(provider: OAuthProvider, seen: list[Any]) -> Root:
    """An agent whose callback and instruction have the token, and whose tool caches it."""
    config = oauth_config(provider)

    async def files(k: str, credential: AuthCredential, tool_context: ToolContext) -> Any:
        """Read files."""
        seen.append(credential)
        tool_context.state["cached"] = token_of(credential)
        return {"k": k}

    def after(tool: Any, args: Any, tool_context: ToolContext, tool_response: Any) -> Any:
        del tool, args, tool_response
        token = token_of(tool_context.get_auth_response(config))
        if not token:
            return None
        tool_context.state["from_callback"] = token
        return {"from_callback": token}

    tool = AuthenticatedFunctionTool(func=files, auth_config=config)
    return agent(
        "clerk",
        CALL,
        outputs,
        tools=[tool],
        after_tool_callback=after,
        instruction="Use {cached?}.",
    )


def with_node(provider: OAuthProvider, seen: list[Any]) -> Root:
    """A Workflow whose function has the token in its output and its state."""
    config = oauth_config(provider)

    async def read(ctx: Context) -> str:
        credential = AuthHandler(config).get_auth_response(ctx.state)
        seen.append(credential)
        ctx.state["cached"] = token_of(credential)
        return f"has {token_of(credential)}"

    node = FunctionNode(func=read, name="read", auth_config=config, rerun_on_resume=True)
    return Workflow(name="root", edges=[(START, node)])


@pytest.mark.parametrize("root", [with_callback, with_node])
async def test_a_token_is_in_no_table(
    process: TurnProcess,
    provider: OAuthProvider,
    root: Callable[[OAuthProvider, list[Any]], Root],
) -> None:
    seen: list[Any] = []
    with_keys(process)
    async with worker(process, root(provider, seen)):
        _, auth_uri = await asked(process)
        answer = await process.turns.answer_consent(*await consent(auth_uri))
        end = await ended(process, answer.id)
        assert end.state == "completed", end.error
    (credential,) = [each for each in seen if each is not None]
    assert token_of(credential) in provider.valid
    assert (credential.oauth2.refresh_token, credential.oauth2.client_secret) == (None, None)
    rows = (await all_rows(process)).splitlines()
    leaks = [row[:60] for row in rows if any(secret in row for secret in provider.secrets)]
    assert leaks == []


async def test_a_workflow_s_tool_asks_and_goes_on(
    process: TurnProcess, provider: OAuthProvider
) -> None:
    config = oauth_config(provider)

    async def files(tool_context: ToolContext) -> Any:
        """Read files."""
        credential = tool_context.get_auth_response(config)
        if credential is None:
            tool_context.request_credential(config)
            return {"status": "pending"}
        return {"is_valid": token_of(credential) in provider.valid}

    async def arguments() -> dict[str, Any]:
        return {}

    with_keys(process)
    edges: Any = [(START, FunctionNode(func=arguments, name="arguments"), FunctionTool(files))]
    async with worker(process, Workflow(name="root", edges=edges)):
        _, auth_uri = await asked(process)
        answer = await process.turns.answer_consent(*await consent(auth_uri))
        end = await ended(process, answer.id)
    assert (end.state, end.error) == ("completed", None)
    assert (provider.exchanges, provider.problems) == (1, [])
