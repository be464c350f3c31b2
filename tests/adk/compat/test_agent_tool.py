"""Canary of lango/adk/compat/agent_tool.py."""

from tests.support.canary import Canary

CANARY = Canary.of_adk("agent_tool.py", "agents that run as tools in child sessions")
MODULE = "tools.agent_tool"


def test_the_tool_reads_schemas_and_texts_by_these_functions() -> None:
    CANARY.takes(CANARY.part(MODULE, "_get_input_schema"), "agent")
    CANARY.takes(CANARY.part(MODULE, "_get_output_schema"), "agent")
    CANARY.takes(CANARY.part(MODULE, "_part_to_text"), "part")
    CANARY.takes(CANARY.part("utils._schema_utils", "validate_schema"), "schema", "json_text")


def test_the_tool_forwards_artifacts_and_leaves_out_adks_own_state() -> None:
    forwarding = CANARY.part("tools._forwarding_artifact_service", "ForwardingArtifactService")
    CANARY.takes(forwarding, "tool_context")
    tool = CANARY.part(MODULE, "AgentTool")
    CANARY.contains(tool, "ForwardingArtifactService(", "if not k.startswith('_adk')")
