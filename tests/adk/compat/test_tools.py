"""Canary of lango/adk/compat/tools.py."""

from tests.support.canary import Canary

CANARY = Canary.of_adk("tools.py", "the declarations of tools, and the tools of toolsets")


def test_a_request_takes_the_declaration_of_a_tool_by_this_method() -> None:
    CANARY.takes(CANARY.part("tools.base_tool", "BaseTool._get_declaration"), "self")
    request = CANARY.part("models.llm_request", "LlmRequest")
    CANARY.contains(request, "tool._get_declaration()")


def test_agents_take_the_tools_of_a_toolset_by_this_method() -> None:
    from lango.adk.compat import tools

    CANARY.takes(vars(tools)["_listed"], "self")
    agent = CANARY.part("agents.llm_agent")
    CANARY.contains(agent, ".get_tools_with_prefix(")
    confirmation = CANARY.part("flows.llm_flows.tools._confirmation")
    CANARY.contains(confirmation, ".canonical_tools(")
