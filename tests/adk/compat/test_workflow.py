"""Canary of lango/adk/compat/workflow.py."""

from tests.support.canary import Canary

CANARY = Canary.of_adk("workflow.py", "durable nodes of a Workflow")
WRAPPER = "workflow._llm_agent_wrapper"


def test_a_node_runs_its_function_by_this_method() -> None:
    CANARY.part("workflow", "FunctionNode._run_impl")
    node = CANARY.part("workflow", "FunctionNode")
    CANARY.contains(node, "async def _run_impl(", "self._func")
    CANARY.contains(CANARY.part("workflow", "BaseNode"), "self._run_impl(ctx=ctx, node_input=")


def test_the_method_takes_a_context_and_an_input() -> None:
    from lango.adk.compat.workflow import run_function

    CANARY.takes(run_function, "self", "ctx", "node_input")


def test_a_node_keeps_its_function_and_checks_its_output() -> None:
    CANARY.part("workflow", "FunctionNode._func")
    CANARY.takes(CANARY.part("workflow", "FunctionNode._validate_output_data"), "self", "data")


def test_a_context_keeps_the_output_of_its_node() -> None:
    context = CANARY.part("agents.context", "Context")
    CANARY.contains(
        context,
        "self._output_delegated = False",
        "self._output_value: Any = None",
        "return self._output_value",
    )


def test_the_failure_of_a_child_node_has_its_error() -> None:
    failure = CANARY.part("workflow._errors", "DynamicNodeFailError")
    CANARY.takes(failure, "message", "error", "error_node_path")
    cause = ValueError("no")
    raised = failure(message="no", error=cause, error_node_path="a/b")
    CANARY.check(raised.error is cause, "DynamicNodeFailError", "the attribute error")


def test_adk_prepares_the_input_of_an_agent_by_this_function() -> None:
    CANARY.part(WRAPPER, "prepare_llm_agent_input")
    run = CANARY.part(WRAPPER, "run_llm_agent_as_node")
    CANARY.contains(run, "prepare_llm_agent_input(")


def test_the_function_appends_the_input_to_the_events() -> None:
    from lango.adk.compat.workflow import prepare_input

    CANARY.takes(prepare_input, "agent", "ctx", "node_input")
    CANARY.contains(prepare_input, "ctx.session.events.append(user_event)")
