"""The records of model calls, on both databases."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
import sqlalchemy as sa

from lango.core.context.model_calls import ModelAttempt, ModelCall, PromptPart
from lango.core.ids import new_id
from lango.core.messages.streams import Usage
from lango.store import prompt_parts as prompt_parts_store
from lango.store.model_calls import ModelCallStore
from lango.store.prompt_parts import PartLink
from lango.store.schema.tables import model_calls, prompt_parts
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import beside, created, key, said

ATTEMPT = ModelAttempt(
    provider="openai",
    model="gpt-5",
    started=1_760_000_000.25,
    ended=1_760_000_002.5,
    first_byte=1_760_000_001.125,
    request_id="req-1",
    usage=Usage(input=100, output=20, cached=50, reasoning=5),
)


def call(session_id: str = "s", **fields: Any) -> ModelCall:
    given: dict[str, Any] = {
        "attempt": ATTEMPT,
        "number": 1,
        "call": new_id("mc"),
        "session": ("a", "u", session_id),
        "turn": "turn-1",
        "agent": "root",
        "budget": 32_000,
        "estimated": 130,
        "sent": 3,
        "left_out": 2,
        "shortened": ("call-1", "call-2"),
        "why": "budget",
        "first_seq": 3,
        "last_seq": 5,
        "price": 0.0125,
    }
    return ModelCall(**{**given, **fields})


@pytest_asyncio.fixture
async def store(store_url: str) -> AsyncIterator[SqlSessionStore]:
    async with SqlSessionStore(store_url) as store:
        yield store


@pytest.fixture
def calls(store: SqlSessionStore) -> ModelCallStore:
    return ModelCallStore(store.database)


async def count(url: str, table: sa.Table, tenant: str) -> int:
    async with beside(url) as connection:
        found = sa.select(sa.func.count()).select_from(table).where(table.c.tenant == tenant)
        return (await connection.execute(found)).scalar_one()


async def test_a_record_comes_back_as_it_was(
    store: SqlSessionStore, calls: ModelCallStore, tenant: str
) -> None:
    await created(store, key(tenant))
    bare = ModelCall(
        ModelAttempt("x", "y", 1.0, 2.0, outcome="failed", error="RateLimitedError"),
        2,
        call=new_id("mc"),
        session=("a", "u", "s"),
    )
    result = [call(), bare]
    await calls.add(tenant, result)
    assert [row.call for row in await calls.of_session(key(tenant))] == result[::-1]


async def test_adding_again_adds_nothing(
    store_url: str, calls: ModelCallStore, tenant: str
) -> None:
    """As after a COMMIT whose reply was lost."""
    records = [call(), call()]
    await calls.add(tenant, records)
    await calls.add(tenant, [*records, call()])
    assert await count(store_url, model_calls, tenant) == 3
    await calls.add(tenant, [])


async def test_pages_newest_first(
    store: SqlSessionStore, calls: ModelCallStore, tenant: str
) -> None:
    await created(store, key(tenant))
    for number in range(7):
        await calls.add(tenant, [call(sent=number), call("other", sent=99)])
    seen: list[int] = []
    before: int | None = None
    while page := await calls.of_session(key(tenant), before=before, limit=3):
        seen += [row.call.sent for row in page]
        before = page[-1].pk
    assert seen == [6, 5, 4, 3, 2, 1, 0]
    with pytest.raises(ValueError, match="1 to 1000, not 0"):
        await calls.of_session(key(tenant), limit=0)


async def test_a_text_is_kept_once_for_each_tenant(
    store_url: str, calls: ModelCallStore, tenant: str
) -> None:
    system, tools = PromptPart("Be brief."), PromptPart('[["look","",{}]]')
    for one in (tenant, f"{tenant}-2"):
        for _ in range(3):
            await calls.add(one, [call(system=system, tools=tools)] * 2)
    for one in (tenant, f"{tenant}-2"):
        assert await count(store_url, prompt_parts, one) == 2
        [row, *_] = await calls.of_session(key(one))
        assert (row.system_hash, row.tools_hash) == (system.hash, tools.hash)
        assert await calls.prompt_part(one, system.hash) == "Be brief."
        assert await calls.prompt_part(one, tools.hash) == tools.text
    assert await calls.prompt_part(f"{tenant}-3", system.hash) is None


async def test_tenants_do_not_see_each_other(
    store: SqlSessionStore, calls: ModelCallStore, tenant: str
) -> None:
    await created(store, key(tenant))
    await calls.add(tenant, [call()])
    assert await calls.of_session(key(f"{tenant}-2")) == []
    await calls.add(f"{tenant}-2", [call(sent=77)])
    assert [row.call.sent for row in await calls.of_session(key(tenant))] == [3]


async def test_deleting_a_session_deletes_its_calls(
    store_url: str, store: SqlSessionStore, calls: ModelCallStore, tenant: str
) -> None:
    for session_id in ("s", "t"):
        await created(store, key(tenant, session_id))
        await calls.add(tenant, [call(session_id), call(session_id)])
    await store.delete(key(tenant, "s"))
    assert await calls.of_session(key(tenant, "s")) == []
    assert len(await calls.of_session(key(tenant, "t"))) == 2
    assert await count(store_url, model_calls, tenant) == 2


async def test_hostile_texts_are_kept_readable(calls: ModelCallStore, tenant: str) -> None:
    attempt = replace(ATTEMPT, provider="a\x00b", request_id="\ud800", error="\x00")
    hostile = call(attempt=attempt, agent="\x00", turn="\udfff", shortened=("\x00",))
    await calls.add(tenant, [replace(hostile, system=PromptPart("\x00\ud800"))])
    [row] = await calls.of_session(key(tenant))
    assert row.call.attempt.provider == "a\ufffdb"
    assert row.call.shortened == ("\ufffd",)
    assert await calls.prompt_part(tenant, row.system_hash or "") == "\ufffd\ufffd"


async def test_names_of_sessions_kept_elsewhere_have_any_length(
    calls: ModelCallStore, tenant: str
) -> None:
    """An index of PostgreSQL has not: one such record would keep the others of its batch out."""
    names = [secrets.token_hex(3_000) for _ in range(3)]
    where = SessionKey(tenant, *names)
    other = SessionKey(tenant, names[0], names[1], names[2] + "x")
    await calls.add(tenant, [call(session=tuple(names)), call("elsewhere")])
    assert len(await calls.of_session(where)) == 1
    assert await calls.of_session(other) == []
    assert len(await calls.of_session(key(tenant, "elsewhere"))) == 1


async def test_many_writers_at_once(store_url: str, store: SqlSessionStore, tenant: str) -> None:
    """Of one session, which is appended to meanwhile, with texts that all of them have."""
    ref = await created(store, key(tenant))
    parts = [PromptPart(f"text {number}") for number in range(4)]

    async def write(number: int) -> None:
        own = ModelCallStore(store.database)
        records = [call(system=parts[(number + n) % 4], tools=parts[n % 4]) for n in range(8)]
        await own.add(tenant, records)
        await store.append(ref, said(f"e{number}"))

    await asyncio.gather(*(write(number) for number in range(8)))
    assert await count(store_url, model_calls, tenant) == 64
    assert await count(store_url, prompt_parts, tenant) == 4


async def test_a_record_does_not_wait_for_an_append(postgres_url: str, tenant: str) -> None:
    """Nor the other way round: the lock on the session's row keeps only a delete out."""
    async with SqlSessionStore(postgres_url) as store:
        ref = await created(store, key(tenant))
        calls = ModelCallStore(store.database)
        async with beside(postgres_url) as other:
            await other.execute(
                sa.text("update sessions set next_seq = next_seq where pk = :pk"), {"pk": ref.pk}
            )
            await asyncio.wait_for(calls.add(tenant, [call()]), 5)
        async with beside(postgres_url) as other:
            held = sa.text("select 1 from sessions where pk = :pk for key share")
            await other.execute(held, {"pk": ref.pk})
            await asyncio.wait_for(store.append(ref, said("e1")), 5)


async def test_parts_are_written_again_after_a_lost_connection(
    postgres_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqlSessionStore(postgres_url) as store:
        ref = await created(store, key(tenant))
        fetch, failures = store.database.fetch, [asyncpg.ConnectionDoesNotExistError("closed")]

        async def fetch_once_in_vain(sql: str, *arguments: Any) -> list[Any]:
            if failures:
                raise failures.pop()
            return await fetch(sql, *arguments)

        monkeypatch.setattr(store.database, "fetch", fetch_once_in_vain)
        link = PartLink(ref.pk or 0, tenant, secrets.token_hex(16))
        assert await prompt_parts_store.add_at_once(store.database, {link: ("system", "hello")})
        assert not failures
    assert await count(postgres_url, prompt_parts, tenant) == 1
