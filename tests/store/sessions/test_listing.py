"""Pages of sessions and of messages."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
import sqlalchemy as sa

from lango.errors import InvalidIdError, SessionExistsError, SessionNotFoundError
from lango.store.schema.tables import messages, sessions
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.listing import SessionFilter, SessionSummary
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import beside, created, key, said

NOON = datetime(2026, 3, 4, 12, 0, 0, 123_456, tzinfo=UTC)


async def _active_at(url: str, where: SessionKey, time: datetime) -> None:
    condition = (sessions.c.tenant == where.tenant, sessions.c.id == where.session_id)
    async with beside(url) as connection:
        await connection.execute(sa.update(sessions).where(*condition).values(last_activity=time))


async def _make(url: str, store: SqlSessionStore, tenant: str, *times: datetime) -> list[str]:
    """Sessions named by their number, last active at these times."""
    for number, time in enumerate(times):
        await created(store, key(tenant, str(number)))
        await _active_at(url, key(tenant, str(number)), time)
    return [str(number) for number in range(len(times))]


async def _pages(
    store: SqlSessionStore, tenant: str, limit: int, title: str = ""
) -> list[list[SessionSummary]]:
    pages: list[list[SessionSummary]] = []
    cursor: str | None = None
    while True:
        page = await store.page(
            tenant, "a", wanted=SessionFilter(title), cursor=cursor, limit=limit
        )
        pages.append(list(page.items))
        cursor = page.next_cursor
        if cursor is None:
            return pages


def _ids(pages: list[list[SessionSummary]]) -> list[str]:
    return [one.id for page in pages for one in page]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
async def test_the_last_active_come_first(limit: int, store_url: str, tenant: str) -> None:
    times = [NOON + timedelta(microseconds=step) for step in (3, 0, 5, 1, 4, 2, 6)]
    async with SqlSessionStore(store_url) as store:
        await _make(store_url, store, tenant, *times)
        pages = await _pages(store, tenant, limit)
    assert _ids(pages) == ["6", "2", "4", "0", "5", "3", "1"]
    assert all(len(page) == limit for page in pages[:-1])
    assert len(pages) == -(-7 // limit)


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
async def test_sessions_active_at_the_same_time_come_once_each(
    limit: int, store_url: str, tenant: str
) -> None:
    async with SqlSessionStore(store_url) as store:
        ids = await _make(store_url, store, tenant, *[NOON] * 5, NOON + timedelta(1), *[NOON] * 2)
        pages = await _pages(store, tenant, limit)
    found = _ids(pages)
    assert found[0] == "5"
    assert sorted(found) == sorted(ids)
    # Among equals the newest first, so that the order is the same on every page and every day.
    assert found[1:] == sorted(set(ids) - {"5"}, key=int, reverse=True)


async def test_times_without_a_fraction_and_before_1970(store_url: str, tenant: str) -> None:
    times = [datetime(year, 1, 1, tzinfo=UTC) for year in (1969, 1900, 1970, 2100)]
    times.append(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
    async with SqlSessionStore(store_url) as store:
        await _make(store_url, store, tenant, *times)
        pages = await _pages(store, tenant, 1)
    assert _ids(pages) == ["3", "2", "4", "0", "1"]
    assert [page[0].last_activity for page in pages][1:3] == [0.0, -1e-06]


async def test_activity_between_two_pages_repeats_and_loses_nothing(
    store_url: str, tenant: str
) -> None:
    async with SqlSessionStore(store_url) as store:
        await _make(store_url, store, tenant, *(NOON - timedelta(n) for n in range(6)))
        first = await store.page(tenant, "a", limit=3)
        await _active_at(store_url, key(tenant, "5"), NOON + timedelta(1))  # jumps ahead
        await created(store, key(tenant, "new"))
        rest = await store.page(tenant, "a", cursor=first.next_cursor, limit=3)
    assert [one.id for one in first.items] == ["0", "1", "2"]
    assert [one.id for one in rest.items] == ["3", "4"]
    assert rest.next_cursor is None


async def test_a_page_says_what_a_list_shows(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        stored = await store.create(key(tenant, "one"), title="Holiday in Röm")
        await store.append(stored.ref, said("1"))
        await store.append(stored.ref, said("2", role="control", counts=False, tokens=0))
        await store.append(stored.ref, said("3"))
        [summary] = (await store.page(tenant, "a")).items
    assert (summary.app_name, summary.user_id, summary.id) == ("a", "u", "one")
    assert summary.public_id == stored.public_id
    assert summary.title == "Holiday in Röm"
    assert (summary.message_count, summary.total_tokens) == (2, 20)
    assert summary.created == stored.created
    assert summary.last_activity >= stored.last_activity


async def test_pages_of_one_user_and_by_title(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        for user in ("ann", "bob"):
            for name in ("Tea", "50% off", "50 off"):
                await store.create(key(tenant, name, user=user), title=name)
        await store.create(key(tenant, "Tea", app="other"), title="Tea")
        own = await store.page(tenant, "a", "ann", limit=2)
        rest = await store.page(tenant, "a", "ann", limit=2, cursor=own.next_cursor)
        teas = await store.page(tenant, "a", wanted=SessionFilter("tEa"))
        percent = await store.page(tenant, "a", wanted=SessionFilter("0% o"))
        carls = await store.page(tenant, "a", "carl")
    assert {one.user_id for one in (*own.items, *rest.items)} == {"ann"}
    assert len(own.items) + len(rest.items) == 3
    assert sorted(one.user_id for one in teas.items) == ["ann", "bob"]
    assert {one.id for one in percent.items} == {"50% off"}
    assert (list(carls.items), carls.next_cursor) == ([], None)


async def test_tenants_have_lists_of_their_own(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        await created(store, key(tenant, "mine"))
        await created(store, key(f"{tenant}-other", "theirs"))
        assert _ids(await _pages(store, tenant, 5)) == ["mine"]


@pytest.mark.parametrize(
    "cursor",
    [
        "!!!",
        "é",
        "bm90IGpzb24",  # not json
        "MQ",  # 1
        "bnVsbA",  # null
        "W10",  # []
        "WzFd",  # [1]
        "WyJhIiwiYiJd",  # ["a","b"]
        "eyJhIjoxLCJiIjoyfQ",  # {"a":1,"b":2}
        "WzFlOTksMV0",  # [1e99,1]
        "WzEsbnVsbF0",  # [1,null]
        "WzEsMWU5OV0",  # [1,1e99]
        "Wzk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTksMV0",  # [9…9,1]
        "WzEsOTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5XQ",  # [1,9…9]
        "W3RydWUsdHJ1ZV0",  # [true,true]
    ],
)
async def test_what_is_no_cursor_is_refused(cursor: str, store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        with pytest.raises(InvalidIdError, match="Not a cursor"):
            await store.page(tenant, "a", cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_page_of_nothing_is_refused(limit: int, store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        await created(store, key(tenant))
        with pytest.raises(ValueError, match="limit"):
            await store.page(tenant, "a", limit=limit)
        with pytest.raises(ValueError, match="limit"):
            await store.messages(key(tenant), limit=limit)


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_several_apps_are_one_list(limit: int, store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        for number in range(9):
            where = key(tenant, str(number), app="abc"[number % 3])
            await created(store, where)
            await _active_at(store_url, where, NOON + timedelta(number))
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await store.page(tenant, ["a", "c", "a"], cursor=cursor, limit=limit)
            found += [one.id for one in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        nothing = await store.page(tenant, [])
    assert found == ["8", "6", "5", "3", "2", "0"]
    assert list(nothing.items) == []


async def test_a_session_is_found_by_its_public_id(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        stored = await store.create(key(tenant), title="Mine")
        found = await store.find(tenant, "u", stored.public_id)
        assert (found.key, found.title) == (key(tenant), "Mine")
        assert await store.summary(key(tenant)) == found
        for whose in ((f"{tenant}-other", "u"), (tenant, "v"), ("", "u")):
            with pytest.raises(SessionNotFoundError):
                await store.find(*whose, stored.public_id)
        with pytest.raises(SessionNotFoundError):
            await store.summary(key(tenant, "other"))


async def test_a_child_of_a_session_is_not_found(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        parent = await created(store, key(tenant))
        child = await store.create(key(tenant, "child"))
        async with beside(store_url) as connection:
            statement = sa.update(sessions).where(sessions.c.public_id == child.public_id)
            await connection.execute(statement.values(parent_pk=parent.pk))
        with pytest.raises(SessionNotFoundError):
            await store.find(tenant, "u", child.public_id)


async def test_a_public_id_is_created_once(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        first = await store.create(key(tenant), public_id=f"ses_{tenant}")
        again = await store.create(key(tenant), title="late", public_id=f"ses_{tenant}")
        assert (again.pk, again.title) == (first.pk, "")
        with pytest.raises(SessionExistsError):
            await store.create(key(tenant, "other"), public_id=f"ses_{tenant}")


# --- messages --------------------------------------------------------------------------------


async def _talk(store: SqlSessionStore, tenant: str, count: int) -> None:
    """Messages told at the same moment, every third followed by a control row."""
    ref = await created(store, key(tenant))
    for number in range(count):
        await store.append(ref, said(f"m{number}", str(number)))
        if number % 3 == 2:
            await store.append(ref, said(f"c{number}", role="control", counts=False, tokens=0))


@pytest.mark.parametrize("limit", [1, 3, 4, 50])
async def test_back_through_the_messages(limit: int, store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        await _talk(store, tenant, 10)
        found: list[str] = []
        before: int | None = None
        while page := await store.messages(key(tenant), before=before, limit=limit):
            assert all(one.seq < other.seq for one, other in pairwise(page))
            assert len(page) <= limit
            found = [row.content for row in page] + found
            before = page[0].seq
    assert found == [str(number) for number in range(10)]


@pytest.mark.parametrize("limit", [1, 3, 4, 50])
async def test_forward_through_the_messages(limit: int, store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        await _talk(store, tenant, 10)
        found: list[str] = []
        after = 0
        while page := await store.messages(key(tenant), after=after, limit=limit):
            found += [row.content for row in page]
            after = page[-1].seq
    assert found == [str(number) for number in range(10)]


async def test_between_two_messages(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        await _talk(store, tenant, 10)
        everything = await store.messages(key(tenant))
        first, last = everything[2].seq, everything[6].seq
        between = await store.messages(key(tenant), after=first, before=last)
        two = await store.messages(key(tenant), after=first, before=last, limit=2)
    assert [row.content for row in between] == ["3", "4", "5"]
    assert [row.content for row in two] == ["3", "4"]


async def test_undone_messages_are_not_shown(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        await _talk(store, tenant, 4)
        ref = await store.locate(key(tenant))
        async with beside(store_url) as connection:
            undo = sa.update(messages).where(
                messages.c.session_pk == ref.pk, messages.c.event_id == "m1"
            )
            await connection.execute(undo.values(undone_by=99))
        page = await store.messages(key(tenant))
    assert [row.content for row in page] == ["0", "2", "3"]
