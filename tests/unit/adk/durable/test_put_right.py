"""The patches of ADK can be applied again: the second time changes nothing."""

from google.adk.flows.llm_flows.context import _contents
from google.adk.workflow import FunctionNode, _llm_agent_wrapper

from lango.adk.durable.calls import later_results
from lango.adk.durable.nodes import functions as function_nodes
from lango.adk.durable.nodes import input as node_input


def test_patching_twice_is_patching_once() -> None:
    for _ in range(2):
        node_input.install_patch()
        function_nodes.install_patch()
        later_results.install_patch()
    assert FunctionNode._run_impl is function_nodes.run_recorded  # pyright: ignore[reportPrivateUsage]
    assert _llm_agent_wrapper.prepare_llm_agent_input is node_input.prepared
    arranged = _contents._rearrange_events_for_latest_function_response  # pyright: ignore
    assert arranged is later_results.rearranged
