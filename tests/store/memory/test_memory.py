"""The memory of users: what joins it, what a search finds, and what is left of it."""

import asyncio
import time
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faults.store.leftovers import leftovers
from lango.core.memory import MAX_TEXT
from lango.core.turns.events import Cancelled, Completed, End, Failed, InputRequired
from lango.errors import Fenced, SessionNotFoundError
from lango.store.memory.rows import owner_of
from lango.store.memory.store import HITS, HITS_STATEMENT, MAX_SHOWN, NewMemory, SqlMemoryStore
from lango.store.schema.tables import memories
from lango.store.sessions.entries import Rewind, SessionKey, SessionRef
from lango.store.turns.rows import Claim
from tests.store.rows import beside, key, raw, said
from tests.store.turns.turn_stores import Lossy, TurnStores, opened


def word(tenant: str) -> str:
    """A word that no other test uses: they share a database."""
    return f"canary{tenant.removeprefix('tenant-')[:16]}"


def new(event_id: str, text: str, **fields: Any) -> NewMemory:
    return replace(NewMemory(event_id, "user", "user", 1_760_000_000.0, text), **fields)


async def found(stores: TurnStores, where: SessionKey, query: str, limit: int = 10) -> list[str]:
    store = SqlMemoryStore(stores.sessions.database)
    return [memory.text for memory in await store.search(where, query, limit)]


async def rows(url: str, tenant: str) -> list[tuple[str, str, str]]:
    """The entries of a tenant, by their numbers."""
    columns = (memories.c.event_id, memories.c.author, memories.c.text)
    statement = sa.select(*columns).where(memories.c.tenant == tenant).order_by(memories.c.pk)
    async with beside(url) as connection:
        return [(row[0], row[1], row[2]) for row in await connection.execute(statement)]


async def is_sound(url: str) -> None:
    """The words of SQLite's index are those of the table."""
    if url.startswith("sqlite"):
        async with beside(url) as connection:
            check = "insert into memory_words (memory_words, rank) values ('integrity-check', 1)"
            await connection.execute(sa.text(check))


async def running(stores: TurnStores, where: SessionKey) -> Claim:
    """A turn with a message of the user, a call, its result and an answer."""
    ref = await stores.session(where)
    turn = await stores.submit(where)
    claim = await stores.claim(ref.pk, await stores.worker())
    of_turn = {"invocation_id": turn.invocation_id}
    for entry in (
        said("q", "Where did Minka sleep?", **of_turn),
        said("c", "", role="assistant", author="clerk", tool_calls="[]", **of_turn),
        said("r", "a tool's words", role="tool", author="clerk", **of_turn),
        said("x", "a mark", role="control", author="clerk", counts=False, **of_turn),
        said("a", "On the sofa.", role="assistant", author="clerk", **of_turn),
    ):
        await stores.sessions.append(claim.ref, entry, claim.epoch)
    return claim


SAID = [("q", "user", "Where did Minka sleep?"), ("a", "clerk", "On the sofa.")]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (Completed(), SAID),
        (InputRequired(("call",)), SAID),
        (Cancelled(), []),
        (Failed(ValueError()), []),
    ],
)
async def test_what_was_said_in_a_turn_joins_the_memory_when_it_is_closed(
    store_url: str, tenant: str, end: End, expected: list[Any]
) -> None:
    async with opened(store_url) as stores:
        claim = await running(stores, key(tenant))
        closed = await stores.queue.close(claim, end, remembers=True)
        assert closed.turn.state == end.type
        assert await rows(store_url, tenant) == expected
        assert (await found(stores, key(tenant), "sofa") == ["On the sofa."]) is bool(expected)
    await is_sound(store_url)


async def test_long_messages_join_the_memory_cut(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await running(stores, key(tenant))
        long = " ".join(f"word{number}" for number in range(10_000))
        for number in range(3):
            fields = {"invocation_id": claim.turn.invocation_id, "role": "assistant"}
            entry = said(f"long {number}", f"{long} {number}", **fields)
            await stores.sessions.append(claim.ref, entry, claim.epoch)
        await stores.queue.close(claim, Completed(), remembers=True)
        lengths = [len(text) for _, _, text in await rows(store_url, tenant)]
        assert lengths == [len("Where did Minka sleep?"), len("On the sofa."), *[MAX_TEXT] * 3]
        assert len(await found(stores, key(tenant), "word77")) == 3
    await is_sound(store_url)


async def test_a_session_of_several_pages_is_added_whole(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        for number in range(250):
            await stores.sessions.append(ref, said(f"e{number}", f"text {number}"))
        store = SqlMemoryStore(stores.sessions.database)
        await store.add_session(ref)
        await store.add_session(ref)
        added = [event_id for event_id, _, _ in await rows(store_url, tenant)]
        assert added == [f"e{number}" for number in range(250)]


async def test_an_app_without_memory_leaves_no_entries(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        await stores.finish(await running(stores, key(tenant)))
        assert await rows(store_url, tenant) == []


async def test_only_the_turn_that_is_closed_joins(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        where = key(tenant)
        ref = await stores.session(where)
        await stores.sessions.append(ref, said("old", "said before the turn"))
        worker = await stores.worker()
        for number in (1, 2):
            turn = await stores.submit(where)
            claim = await stores.claim(ref.pk, worker)
            entry = said(f"e{number}", f"turn {number}", invocation_id=turn.invocation_id)
            await stores.sessions.append(claim.ref, entry, claim.epoch)
            await stores.queue.close(claim, Completed(), remembers=number == 2)
        assert await rows(store_url, tenant) == [("e2", "user", "turn 2")]


async def test_lost_replies_double_nothing(
    store_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(store_url) as stores:
        claim = await running(stores, key(tenant))
        lossy = Lossy(stores, monkeypatch)
        await stores.queue.close(claim, Completed(), remembers=True)
        await SqlMemoryStore(stores.sessions.database).add_session(claim.ref)
        assert lossy.done > 1
    assert await rows(store_url, tenant) == SAID


async def test_a_worker_that_lost_its_turn_adds_nothing(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await running(stores, key(tenant))
        await stores.queue.renew(claim, Cancelled(), "another")
        with pytest.raises(Fenced):
            await stores.queue.close(claim, Completed(), remembers=True)
        assert await rows(store_url, tenant) == []


async def test_a_session_that_is_added_is_not_doubled(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim, store = await running(stores, key(tenant)), SqlMemoryStore(stores.sessions.database)
        await stores.queue.close(claim, Completed(), remembers=True)
        for number in range(250):
            await stores.sessions.append(claim.ref, said(f"e{number}", f"message {number}"))
        for ref in (claim.ref, SessionRef(key(tenant))):
            await store.add_session(ref)
            await store.add(ref, [new("e7", "message 7"), new("q", "Where did Minka sleep?")])
        expected = [*SAID, *((f"e{n}", "user", f"message {n}") for n in range(250))]
        assert await rows(store_url, tenant) == expected


async def test_many_workers_add_one_session_at_once(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref, store = await stores.session(key(tenant)), SqlMemoryStore(stores.sessions.database)
        for number in range(20):
            await stores.sessions.append(ref, said(f"e{number}", f"message {number}"))
        await asyncio.gather(*(store.add_session(ref) for _ in range(5)))
        assert len(await rows(store_url, tenant)) == 20


async def test_a_rewound_turn_is_forgotten(store_url: str, tenant: str) -> None:
    canary = word(tenant)
    async with opened(store_url) as stores:
        ref, store = await stores.session(key(tenant)), SqlMemoryStore(stores.sessions.database)
        await stores.sessions.append(ref, said("e1", "kept"))
        await stores.sessions.append(ref, said("e2", f"undone {canary}", invocation_id="turn-2"))
        await store.add_session(ref)
        undo = said("e3", "", role="control", counts=False, rewind=Rewind("turn-2"))
        await stores.sessions.append(ref, undo)
        await store.add_session(ref)
        assert await rows(store_url, tenant) == [("e1", "user", "kept")]
        assert await found(stores, key(tenant), canary) == []
    await is_sound(store_url)


SESSION_KEYS = [
    SessionKey(f"{tenant}{{}}", app, user, session)
    for tenant, app, user, session in product(("one", "two"), "ab", "uv", "st")
]


async def test_no_user_finds_the_memory_of_another(store_url: str, tenant: str) -> None:
    session_keys = [
        replace(session_key, tenant=session_key.tenant.format(tenant))
        for session_key in SESSION_KEYS
    ]
    async with opened(store_url) as stores:
        store = SqlMemoryStore(stores.sessions.database)
        for session_key in session_keys:
            ref, own = await stores.session(session_key), "-".join(session_key.columns)
            await stores.sessions.append(ref, said("e", f"secret of {own}"))
            await store.add_session(ref)
            await store.add(
                SessionRef(replace(session_key, session_id="")), [new(own, f"fact {own}")]
            )
        for session_key in session_keys:
            users = [
                other for other in session_keys if other.columns[:3] == session_key.columns[:3]
            ]
            own = {f"{what} {'-'.join(other.columns)}" for other in users for what in ("fact",)}
            own |= {f"secret of {'-'.join(other.columns)}" for other in users}
            assert set(await found(stores, session_key, "secret fact one two", 100)) == own
        strangers = await store.search(session_keys[0], "secret", 100)
        for memory in strangers:
            assert not await store.delete(session_keys[-1].tenant, memory.pk)  # of another tenant
            assert not await store.delete(tenant, memory.pk, user_id="other")
        assert len(await store.search(session_keys[0], "secret", 100)) == len(strangers) > 0


TEXTS = [
    "My cat is called Minka and sleeps on the sofa",
    "The dog is called Rex",
    "東京都に住んでいます",
    "나는 서울에 살아요",
    "Crème brûlée is my favourite dessert 🍮",
    "pizza 🍕 every Friday",
    "Ünïcödé ａｎｄ ﬁgures",
]


async def filled(stores: TurnStores, where: SessionKey, *texts: str) -> SqlMemoryStore:
    store = SqlMemoryStore(stores.sessions.database)
    user = SessionRef(replace(where, session_id=""))
    await store.add(user, [new(f"e{number}", text) for number, text in enumerate(texts)])
    return store


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What is my cat called?", [0, 4, 1]),
        ("MINKA", [0]),
        ("東京", [2]),
        ("都", [2]),
        ("서울", [3]),
        ("creme", [4]),
        ("🍕", [5]),
        ("🍮 dessert", [4]),
        ("unicode and figures", [6, 0]),
        ("京東 mink ca", []),
    ],
)
async def test_words_of_every_script_are_found(
    store_url: str, tenant: str, query: str, expected: list[int]
) -> None:
    async with opened(store_url) as stores:
        await filled(stores, key(tenant), *TEXTS)
        assert await found(stores, key(tenant), query) == [TEXTS[number] for number in expected]


HOSTILE = [
    *(
        "",
        " ",
        "'",
        '"',
        "''",
        '""',
        "\\",
        "%",
        "*",
        "NEAR(",
        "a AND",
        "OR",
        "NOT",
        "a NOT b",
        "^a",
    ),
    *("terms:a", "{terms}: a", "a*", "-a", "a:*", "a & | !", "a <-> b", "(((", ")", "$1", ":query"),
    *("'); drop table memories; --", '" OR 1=1 --', "\x00", "a\x00b", "\ud800", "\U0010ffff", "§"),
    *("memory_words", "rank", "a" * 100_000, "a " * 50_000, "東" * 5_000, "🍕" * 500, "a'b\"c"),
]


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
async def test_no_query_is_an_error(store_url: str, tenant: str, query: str) -> None:
    async with opened(store_url) as stores:
        await filled(stores, key(tenant), "a b c", query.replace("\x00", "").replace("\ud800", ""))
        await found(stores, key(tenant), query)


async def test_nor_is_any_other_text(store_url: str, tenant: str) -> None:
    texts = st.text(max_size=200) | st.lists(st.sampled_from(HOSTILE)).map(" ".join)
    storable = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"))
    queries: list[tuple[str, str]] = []

    @settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow], database=None)
    @given(texts, storable)
    def collect(query: str, text: str) -> None:
        queries.append((query[:2_000], text))

    collect()
    async with opened(store_url) as stores:
        await filled(stores, key(tenant), *(text for _, text in queries if text))
        for query, _ in queries:
            await found(stores, key(tenant), query)
    await is_sound(store_url)


async def test_a_long_text_is_cut_for_the_model(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        await filled(stores, key(tenant), "word " * 100_000, "é" * (MAX_SHOWN + 1), "東" * 200_000)
        [text] = await found(stores, key(tenant), "word")
        assert text == ("word " * 100_000)[:MAX_SHOWN] + "…"
        assert len((await found(stores, key(tenant), "東"))[0]) == MAX_SHOWN + 1
        await filled(stores, key(f"{tenant}2"), "words " + "x" * MAX_SHOWN)
        assert len(await found(stores, key(f"{tenant}2"), "words")) == 1


async def test_a_deleted_entry_does_not_come_back(store_url: str, tenant: str) -> None:
    canary = word(tenant)
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        await stores.sessions.append(ref, said("e1", f"the password is {canary}"))
        store = await filled(stores, key(tenant), f"fact {canary}")
        await store.add_session(ref)
        for memory in await store.search(key(tenant), canary, 10):
            assert await store.delete(tenant, memory.pk)
            assert not await store.delete(tenant, memory.pk)
        await store.add_session(ref)
        assert await found(stores, key(tenant), f"{canary} password") == []
        assert await rows(store_url, tenant) == [("e1", "", "")]
    await is_sound(store_url)
    async with beside(store_url) as connection:
        left = await leftovers(connection, canaries=[canary])
    assert {line.split(" ")[3] for line in left} == {"messages"}


async def test_a_user_s_whole_memory_is_deleted(store_url: str, tenant: str) -> None:
    canary, others = word(tenant), [key(tenant, user="v"), key(tenant, app="b")]
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        await stores.sessions.append(ref, said("e1", f"the password is {canary}"))
        store = await filled(stores, key(tenant), f"fact {canary}", f"fact 2 {canary}")
        await store.add_session(ref)
        for other in others:
            await filled(stores, other, "another fact")
        assert await store.delete_all(key(tenant)) == 3
        assert await store.delete_all(key(tenant)) == 0
        await store.add_session(ref)
        assert await store.page(key(tenant), 10) == []
        assert await found(stores, key(tenant), f"{canary} password fact") == []
        for other in others:
            assert await found(stores, other, "fact") == ["another fact"]
        await stores.sessions.append(ref, said("e2", "said afterwards"))
        await store.add_session(ref)
        assert await found(stores, key(tenant), "afterwards") == ["said afterwards"]
    await is_sound(store_url)
    async with beside(store_url) as connection:
        left = await leftovers(connection, canaries=[canary])
    assert {line.split(" ")[3] for line in left} == {"messages"}


async def test_pages_are_in_order(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        await stores.sessions.append(ref, said("e", "a message, then deleted"))
        store = await filled(stores, key(tenant), *(f"fact {number}" for number in range(3)))
        await store.add_session(ref)
        assert await store.delete(tenant, (await store.page(key(tenant), 1))[0].pk)
        await filled(stores, key(tenant), *(f"fact {number}" for number in range(5)))
        await filled(stores, key(tenant, user="v"), "of another user")
        pages, last = list[list[str]](), None
        while page := await store.page(key(tenant), 2, before=last):
            pages.append([memory.text for memory in page])
            last = page[-1].pk
        assert pages == [["fact 4", "fact 3"], ["fact 2", "fact 1"], ["fact 0"]]
        whole = await store.search(key(tenant), "fact", 10)
        parts = [await store.search(key(tenant), "fact", 2, skipped=n) for n in (0, 2, 4, 6)]
        assert [memory for part in parts for memory in part] == whole
        assert [len(part) for part in parts] == [2, 2, 1, 0]


async def test_an_entry_names_its_session(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        await stores.sessions.append(ref, said("e", "of a session"))
        store = await filled(stores, key(tenant), "of the user")
        await store.add_session(ref)
        public_id = (await stores.sessions.summary(key(tenant))).public_id
        names = [(memory.text, memory.public_id) for memory in await store.page(key(tenant), 10)]
        assert names == [("of a session", public_id), ("of the user", None)]


async def test_a_search_reads_the_index_of_words_alone(postgres_url: str, tenant: str) -> None:
    """By the index of the user, it would make words of each of the user's entries."""
    async with opened(postgres_url) as stores:
        await filled(stores, key(tenant), *(f"note {number}" for number in range(2_000)))
        values = {
            **key(tenant).of_user,
            "hits": HITS,
            "queries": [f"'{owner_of(key(tenant))}' & '7'"],
        }
        async with raw(postgres_url) as connection:
            await connection.execute("vacuum analyze memories")  # else entries are not in the index
        async with beside(postgres_url) as connection:
            for way in ("seqscan", "indexscan"):  # what is left can use either index
                await connection.exec_driver_sql(f"set local enable_{way} = off")
            plan = await connection.scalars(sa.text(f"explain {HITS_STATEMENT}"), values)
            lines = "\n".join(plan)
        assert "memories_words_ix" in lines
        assert "memories_user_ix" not in lines


async def test_nothing_is_left_of_a_deleted_session(store_url: str, tenant: str) -> None:
    """Not in the table, and not in the index, which has a life of its own on SQLite."""
    canary = word(tenant)
    async with opened(store_url) as stores:
        store, refs = SqlMemoryStore(stores.sessions.database), list[SessionRef]()
        for name in ("kept", "deleted"):
            refs.append(await stores.session(key(tenant, name)))
            for number in range(30):
                text = f"{name} {number} {canary if name == 'deleted' else ''}"
                await stores.sessions.append(refs[-1], said(f"e{number}", text))
            await store.add_session(refs[-1])
        await stores.sessions.delete(key(tenant, "deleted"))
        async with beside(store_url) as connection:
            pk = refs[-1].pk or 0
            assert await leftovers(connection, canaries=[canary], pks=[pk]) == []
        assert len(await found(stores, key(tenant), "kept", 100)) == 30
        assert await found(stores, key(tenant), canary) == []
    await is_sound(store_url)


async def test_nothing_is_added_to_a_deleted_session(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        store, where = SqlMemoryStore(stores.sessions.database), key(tenant)
        old = await stores.session(where)
        await stores.sessions.append(old, said("e1", "gone"))
        await stores.sessions.delete(where)
        for is_made_anew in (False, True):
            if is_made_anew:
                await stores.session(where)
            with pytest.raises(SessionNotFoundError):
                await store.add(old, [new("e1", "gone")])
            await store.add_session(old)
            assert await rows(store_url, tenant) == []
        with pytest.raises(SessionNotFoundError):
            await store.add_session(SessionRef(key(tenant, "none")))
        with pytest.raises(SessionNotFoundError):
            await store.add(SessionRef(key(tenant, "none")), [new("e", "x")], requires_session=True)
        await store.add(SessionRef(key(tenant, "elsewhere")), [new("e", "stored elsewhere")])
        await store.add(SessionRef(key(tenant, "elsewhere")), [new("e", "stored elsewhere")])
        assert await rows(store_url, tenant) == [("e", "user", "stored elsewhere")]


async def test_ten_thousand_entries(store_url: str, tenant: str) -> None:
    """A rare word of an old entry is found among common ones, and soon; so is a tenant's own."""
    async with opened(store_url) as stores:
        where, other = key(tenant), key(f"{tenant}-other")
        common = [f"note {number} about the usual things of the day" for number in range(10_000)]
        common[17] = "the usual things of the day, and an aardvark"
        await filled(stores, where, *common)
        await filled(stores, other, "note of another tenant")
        began = time.monotonic()
        assert (await found(stores, where, "the usual aardvark of the day"))[0] == common[17]
        assert await found(stores, where, "9999 note") == [
            common[9999],
            *reversed(common[-10:-1]),
        ]
        assert len(await found(stores, where, "the", 1000)) == HITS
        assert await found(stores, other, "note of the day") == ["note of another tenant"]
        assert time.monotonic() - began < 10
