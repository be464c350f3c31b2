"""Canary of lango/adk/compat/mcp.py."""

from tests.support.canary import Canary

CANARY = Canary.of_adk("mcp.py", "the connections and tools of MCP servers")
MANAGER = "tools.mcp_tool.mcp_session_manager"
TOOL = "tools.mcp_tool.mcp_tool"
TOOLSET = "tools.mcp_tool.mcp_toolset"


def test_a_toolset_uses_its_session_manager() -> None:
    toolset = CANARY.part(TOOLSET, "McpToolset")
    CANARY.contains(
        toolset,
        "self._mcp_session_manager = MCPSessionManager(",
        "await self._mcp_session_manager.create_session(",
        "await self._mcp_session_manager.close()",
    )
    execute = CANARY.part(TOOLSET, "McpToolset._execute_with_session")
    CANARY.takes(execute, "self", "coroutine_func", "error_message")


def test_a_toolset_can_do_without_the_cache_of_an_invocation() -> None:
    toolset = CANARY.part("tools.base_toolset", "BaseToolset")
    CANARY.contains(toolset, "self._use_invocation_cache = True", "self._use_invocation_cache\n")


def test_a_tool_runs_by_this_method() -> None:
    run = CANARY.part(TOOL, "McpTool._run_async_impl")
    CANARY.takes(run, "self", "args", "tool_context", "credential")
    authenticated = CANARY.part("tools.base_authenticated_tool", "BaseAuthenticatedTool")
    CANARY.contains(authenticated, "await self._run_async_impl(")


def test_a_tool_makes_its_progress_callback_for_each_call() -> None:
    resolve = CANARY.part(TOOL, "McpTool._resolve_progress_callback")
    CANARY.contains(resolve, "self._progress_callback is None", "(self.name, callback_context=")
    CANARY.contains(
        CANARY.part(TOOL, "McpTool"),
        "self._resolve_progress_callback(tool_context)",
        "progress_callback=resolved_callback",
    )


def test_the_session_manager_opens_and_drops_connections_by_these_methods() -> None:
    CANARY.takes(CANARY.part(MANAGER, "MCPSessionManager._discard_session"), "self", "session")
    CANARY.takes(CANARY.part(MANAGER, "MCPSessionManager._create_client"), "self")
    CANARY.takes(CANARY.part(MANAGER, "MCPSessionManager._get_mtls_transport"), "self")
    manager = CANARY.part(MANAGER, "MCPSessionManager")
    CANARY.contains(manager, "await self._get_mtls_transport()", "client = self._create_client(")
