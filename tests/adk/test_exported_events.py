"""Whatever events a session holds: exported and brought in elsewhere, ADK reads the same."""

import pytest
from google.adk.sessions import Session

from lango.adk.sessions.service import SessionServiceAdapter
from lango.errors import InvalidIdError
from lango.store.sessions.entries import SessionKey
from lango.store.transfer.export import open_export
from lango.store.transfer.restore import NewNames, restore_session
from lango.testing.same import differences
from tests.adk.test_round_trip import generated, whole

COUNT = 60


async def filled(service: SessionServiceAdapter) -> None:
    session = await service.create_session(app_name="app", user_id="user", session_id="s")
    kept = 0
    for event in generated(COUNT):
        try:
            await service.append_event(session, event)
            kept += not event.partial
        except InvalidIdError:
            continue
    assert kept > COUNT // 4


async def read(service: SessionServiceAdapter) -> Session:
    session = await service.get_session(app_name="app", user_id="user", session_id="s")
    assert session is not None
    return session


@pytest.mark.parametrize("is_back", [False, True], ids=["to-postgresql", "to-sqlite"])
async def test_events_and_state_are_the_same(
    is_back: bool, sqlite_url: str, postgres_url: str, tenant: str
) -> None:
    source, target = (postgres_url, sqlite_url) if is_back else (sqlite_url, postgres_url)
    async with whole(source, tenant) as source_service, whole(target, tenant) as target_service:
        await filled(source_service)
        key = SessionKey(tenant, "app", "user", "s")
        export = await open_export(source_service.store.database, key)
        lines = [line async for line in export.lines()]
        await restore_session(target_service.store.database, lambda: iter(lines), NewNames(tenant))
        expected, found = await read(source_service), await read(target_service)
    assert differences(expected.events, found.events) == []
    assert differences(expected.state, found.state) == []
