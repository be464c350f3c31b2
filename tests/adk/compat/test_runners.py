"""Canary of lango/adk/compat/runners.py."""

from tests.support.canary import Canary

CANARY = Canary.of_adk("runners.py", "turns that begin at the root agent")


def test_the_runner_selects_the_agent_by_this_method() -> None:
    runner = CANARY.part("runners", "Runner")
    CANARY.takes(
        CANARY.part("runners", "Runner._find_agent_to_run"), "self", "session", "root_agent"
    )
    CANARY.contains(runner, "agent_to_run = self._find_agent_to_run(")
