"""Canary of lango/adk/compat/agents.py."""

from typing import Any

import pytest

from tests.support.canary import Canary

CANARY = Canary.of_adk("agents.py", "agents that skip the steps they have done")


def test_an_agent_runs_its_callbacks_and_its_body_by_these_methods() -> None:
    callbacks = CANARY.part("agents.base_agent", "BaseAgent._handle_agent_callbacks")
    names = ("plugin_hook", "callbacks", "end_invocation_on_content")
    CANARY.takes(callbacks, "self", "ctx", *names)
    agent = CANARY.part("agents.base_agent", "BaseAgent")
    CANARY.contains(
        agent,
        "self._run_with_lifecycle(parent_context, self._run_async_impl)",
        "callbacks=self.canonical_before_agent_callbacks,\n        end_invocation_on_content=True",
        "callbacks=self.canonical_after_agent_callbacks,\n        end_invocation_on_content=False",
    )


@pytest.mark.parametrize("kind", ["LlmAgent", "LoopAgent", "ParallelAgent", "SequentialAgent"])
def test_every_kind_of_agent_has_a_body_of_its_own(kind: str) -> None:
    agent: Any = CANARY.part("agents", kind)
    CANARY.check("_run_async_impl" in vars(agent), kind, "its own _run_async_impl")
    CANARY.takes(CANARY.part("agents", f"{kind}._run_async_impl"), "self", "ctx")


def test_an_agent_creates_the_event_of_its_state() -> None:
    create = CANARY.part("agents.base_agent", "BaseAgent._create_agent_state_event")
    CANARY.takes(create, "self", "ctx")
