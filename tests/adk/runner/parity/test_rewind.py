"""Rewinds at the edges of what is loaded."""

from typing import Any

import pytest

from tests.adk.runner.parity.features import FEATURES
from tests.adk.runner.parity.same import difference, plain, visible
from tests.adk.runner.parity.services import InMemory, Services, Snapshot, Stored, create, take
from tests.adk.runner.parity.steps import Fill, Notes, Rewind, Say

PLAIN = FEATURES["rewind"]


async def test_a_rewind_beyond_the_window_is_refused(store_url: str, tenant: str) -> None:
    """Outside `whole_session` the invocation is not found, and nothing is touched."""
    stored, notes = Stored(store_url, tenant), Notes()
    await create(stored)
    before = await take(stored, PLAIN, notes, Fill("early"))
    with pytest.raises(ValueError, match="Invocation ID not found"):
        await take(stored, PLAIN, notes, Rewind("early-002"))
    after = await take(stored, PLAIN, notes, Fill("late", turns=0))
    assert after.whole == before.whole
    assert after.state == before.state | {
        "late_first": "late",
        "last_fill": "late",
        "user:late": 1,
        "app:late": 2,
    }


async def test_state_given_at_creation(store_url: str, tenant: str) -> None:
    """ADK reads the state to return to from events alone; so it is here, for the same result."""
    given = {"given": "1", "user:given": "2", "app:given": "3"}
    snapshots = [
        await _rewound(services, given) for services in (Stored(store_url, tenant), InMemory())
    ]
    ours, theirs = snapshots
    assert ours.state == theirs.state
    assert ours.user_state == theirs.user_state
    events, expected = plain(visible(ours.whole)), plain(visible(theirs.whole))
    assert not difference(events, expected), difference(events, expected)


async def _rewound(services: Services, given: dict[str, Any]) -> Snapshot:
    notes = Notes()
    await create(services, given)
    await take(services, PLAIN, notes, Say("one"))
    await take(services, PLAIN, notes, Say("two", label="two"))
    return await take(services, PLAIN, notes, Rewind("two"))
