"""Canary of lango/adk/compat/tools.py."""

from tests.canary import Canary

CANARY = Canary.of_adk("tools.py", "the declarations of lango's tools")


def test_a_request_takes_the_declaration_of_a_tool_by_this_method() -> None:
    CANARY.takes(CANARY.part("tools.base_tool", "BaseTool._get_declaration"), "self")
    request = CANARY.part("models.llm_request", "LlmRequest")
    CANARY.contains(request, "tool._get_declaration()")
