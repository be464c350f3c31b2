"""Canaries: what is put right inside ADK is still there to be put right."""

import inspect

from google.adk.flows.llm_flows.context import _contents
from google.adk.workflow import FunctionNode, _llm_agent_wrapper

from lango.adk.durable import function_nodes, later_results, node_input


def test_adk_still_prepares_the_input_of_a_node_by_this_function() -> None:
    original = node_input._original  # pyright: ignore[reportPrivateUsage]
    assert list(inspect.signature(original).parameters) == ["agent", "ctx", "node_input"]
    caller = inspect.getsource(_llm_agent_wrapper.run_llm_agent_as_node)
    assert "prepare_llm_agent_input(" in caller
    assert "ctx.session.events.append(user_event)" in inspect.getsource(original)


def test_adk_still_runs_a_function_by_this_method() -> None:
    original = function_nodes._original  # pyright: ignore[reportPrivateUsage]
    assert list(inspect.signature(original).parameters) == ["self", "ctx", "node_input"]
    assert "self._func" in inspect.getsource(original)


def test_adk_still_arranges_the_newest_result_by_this_function() -> None:
    original = later_results._original  # pyright: ignore[reportPrivateUsage]
    assert list(inspect.signature(original).parameters) == ["events"]
    caller = inspect.getsource(_contents._get_contents)  # pyright: ignore[reportPrivateUsage]
    assert f"{later_results._NAME}(" in caller  # pyright: ignore[reportPrivateUsage]


def test_putting_right_twice_is_putting_right_once() -> None:
    for _ in range(2):
        node_input.put_right()
        function_nodes.put_right()
        later_results.put_right()
    ours = function_nodes._run_impl  # pyright: ignore[reportPrivateUsage]
    assert FunctionNode._run_impl is ours  # pyright: ignore[reportPrivateUsage]
    assert _llm_agent_wrapper.prepare_llm_agent_input is node_input._prepared  # pyright: ignore[reportPrivateUsage]
    arranged = getattr(_contents, later_results._NAME)  # pyright: ignore[reportPrivateUsage]
    assert arranged is later_results._rearranged  # pyright: ignore[reportPrivateUsage]
