"""ADK's features on our store, each step by a new process, against ADK's in-memory service."""

import pytest

from tests.adk.runner.parity.features import FEATURES
from tests.adk.runner.parity.lockstep import Lockstep
from tests.adk.runner.parity.services import BUDGET, Stored
from tests.adk.runner.parity.steps import sittings

# ADK would have Sequential and Parallel agents written as a Workflow; people have them.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")


@pytest.mark.parametrize("name", FEATURES)
async def test_inside_the_window(name: str, store_url: str, tenant: str) -> None:
    """Nothing is cut: every event, state, artifact and model request is the same."""
    pair = await Lockstep.begin(name, Stored(store_url, tenant, token_budget=0))
    for steps in sittings(FEATURES[name].short):
        await pair.take(*steps)
        pair.same_session()
        pair.same_requests()
        assert pair.ours.window == pair.ours.whole


@pytest.mark.parametrize("name", FEATURES)
async def test_beyond_the_window(name: str, store_url: str, tenant: str) -> None:
    """At least three windows: what is loaded is the end of the session and what is open."""
    pair = await Lockstep.begin(name, Stored(store_url, tenant))
    for steps in sittings(FEATURES[name].long):
        pair.loads_what_answers(steps[0])
        await pair.take(*steps)
        pair.same_session()
        pair.same_last_prompts()
        pair.loads_the_end()
    assert pair.most_tokens >= 3 * BUDGET
    assert pair.most_cut > 0
