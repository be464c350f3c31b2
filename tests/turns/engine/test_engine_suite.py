"""Every engine keeps the rules of engines."""

import pytest

from faults.carriers.temporal_server import TemporalServer
from lango.testing.engine_suite import EngineCheck, Fleet, checks
from lango.turns.engine.database import LocalEngine
from lango.turns.engine.temporal import TemporalEngine

DEAD_AFTER = 1.5


def _name(check: EngineCheck) -> str:
    return getattr(check, "__name__", "")


@pytest.mark.parametrize("check", checks(), ids=_name)
async def test_the_database_as_an_engine(check: EngineCheck, store_url: str) -> None:
    async with Fleet(store_url, lambda db: LocalEngine(db, dead_after=DEAD_AFTER)) as fleet:
        await check(fleet)


@pytest.mark.parametrize("check", checks(), ids=_name)
async def test_temporal_as_an_engine(
    check: EngineCheck, postgres_url: str, temporal: TemporalServer
) -> None:
    async with Fleet(
        postgres_url, lambda db: TemporalEngine(db, temporal.url, dead_after=DEAD_AFTER)
    ) as fleet:
        await check(fleet)
