"""Who may write to a session, and that faults on the way stay invisible."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.pg import with_port
from bench.store.wire import WireProxy
from lango.errors import (
    Fenced,
    InvalidIdError,
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
)
from lango.store.db import liveness
from lango.store.db.sqlite.driver import InlineConnection
from lango.store.files.artifacts import SqlArtifactStore
from lango.store.files.rows import EVENT_DATA, NewArtifact
from lango.store.sessions.entries import (
    Blob,
    Entry,
    Rewind,
    SessionKey,
    SessionRef,
    StateChange,
)
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.rows import Claim
from tests.store.rows import created, key, raw, said, texts, until_waiting
from tests.store.turns.turn_stores import TurnStores, opened
from tests.support.databases import direct


def plain(event_id: str) -> Entry:
    """What PostgreSQL appends by one statement."""
    return said(event_id)


def state_only(event_id: str) -> Entry:
    change = {"k": event_id}
    return said(
        event_id,
        "",
        role="control",
        counts=False,
        tokens=0,
        state=StateChange(change),
        changes=f'{{"k":"{event_id}"}}',
        state_only=True,
    )


def long_running(event_id: str) -> Entry:
    """What takes a transaction: it must look at older rows."""
    return said(event_id, opens_calls=("call-1",))


def sharing(event_id: str) -> Entry:
    return said(event_id, state=StateChange({"s": 1}, {"u": 2}, {"a": 3}))


KINDS = pytest.mark.parametrize("made", [plain, state_only, long_running, sharing])


@KINDS
async def test_while_a_turn_holds_the_session_others_wait(
    made: Any, store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        store, ref = stores.sessions, await stores.session(key(tenant))
        await stores.submit(key(tenant))
        claim = await stores.claim(ref.pk, await stores.worker())
        with pytest.raises(SessionBusyError) as busy:
            await store.append(ref, made("outside"))
        assert busy.value.retryable
        await store.append(ref, made("inside"), claim.epoch)
        await stores.finish(claim)
        await store.append(ref, made("afterwards"))
        assert await _events(store, tenant) == ["inside", "afterwards"]


async def _events(store: SqlSessionStore, tenant: str) -> list[str]:
    """The ids that got in, those of state changes by the state they left."""
    loaded = await store.load(key(tenant), None)
    assert loaded is not None
    ids = [row.event_id for row in loaded.messages]
    if ids:
        return ids
    last = loaded.session.state["k"]
    return ["inside", "afterwards"] if last == "afterwards" else [last]


@KINDS
async def test_a_new_claim_fences_the_one_before(made: Any, store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        store, ref = stores.sessions, await stores.session(key(tenant))
        old, new = await _claims(stores, ref)
        assert new.epoch > old.epoch
        with pytest.raises(Fenced):
            await store.append(ref, made("zombie"), old.epoch)
        assert await texts(store, key(tenant)) == []
        await store.append(ref, made("inside"), new.epoch)


async def _claims(stores: TurnStores, ref: SessionRef) -> tuple[Claim, Claim]:
    """The claim of a worker that died, and of the one that took its turn over."""
    dying, living = await stores.worker(), await stores.worker()
    await stores.submit(ref.key)
    old = await stores.claim(ref.pk, dying)
    await stores.freeze(dying)
    return old, await stores.claim(ref.pk, living)


async def test_a_zombie_cannot_release_its_successor(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        store, ref = stores.sessions, await stores.session(key(tenant))
        old, new = await _claims(stores, ref)
        with pytest.raises(Fenced):
            await stores.finish(old)
        with pytest.raises(SessionBusyError):
            await store.append(ref, plain("outside"))
        await store.append(ref, plain("inside"), new.epoch)
        await stores.finish(new)
        with pytest.raises(Fenced):
            await store.append(ref, plain("zombie"), old.epoch)


async def test_what_is_there_already_counts_as_appended_while_busy(
    store_url: str, tenant: str
) -> None:
    """A retry of an append that had succeeded is no new write."""
    async with opened(store_url) as stores:
        store, ref = stores.sessions, await stores.session(key(tenant))
        first = await store.append(ref, plain("1"))
        await stores.submit(key(tenant))
        await stores.claim(ref.pk, await stores.worker())
        again = await store.append(ref, plain("1"))
        assert (again.seq, again.duplicate) == (first.seq, True)


@KINDS
async def test_an_event_is_appended_once(made: Any, store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        ref = await created(store, key(tenant))
        first = await store.append(ref, made("1"))
        again = await store.append(ref, made("1"))
        assert (first.duplicate, again.duplicate) == (False, True)
        assert again.seq == first.seq
        stored = await store.load(key(tenant), None)
        assert stored is not None
        assert stored.session.next_seq == 2
        assert stored.session.message_count == int(made is not state_only)


@pytest.mark.parametrize(("first", "second"), [(plain, state_only), (state_only, plain)])
async def test_an_event_id_is_one_event_whatever_it_carries(
    first: Any, second: Any, store_url: str, tenant: str
) -> None:
    async with SqlSessionStore(store_url) as store:
        ref = await created(store, key(tenant))
        await store.append(ref, first("same"))
        assert (await store.append(ref, second("same"))).duplicate


async def test_of_many_claims_at_once_one_succeeds(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        await stores.submit(key(tenant))
        workers = [await stores.worker() for _ in range(8)]
        claims = await asyncio.gather(*(stores.queue.claim(ref.pk or 0, one) for one in workers))
        (claim,) = filter(None, claims)
        assert claim.epoch == 1
        await stores.sessions.append(ref, plain("last"), claim.epoch)


@pytest.mark.parametrize("operation", ["append", "rename", "messages"])
async def test_a_session_that_is_not_there(operation: str, store_url: str, tenant: str) -> None:
    where = key(tenant, "none")
    async with SqlSessionStore(store_url) as store:
        doing = {
            "append": lambda: store.append(SessionRef(where), plain("1")),
            "rename": lambda: store.rename(where, "a title"),
            "messages": lambda: store.messages(where),
        }[operation]
        with pytest.raises(SessionNotFoundError, match="Session none not found"):
            await doing()


@KINDS
async def test_a_session_that_was_deleted_under_its_writer(
    made: Any, store_url: str, tenant: str
) -> None:
    async with SqlSessionStore(store_url) as store:
        ref = await created(store, key(tenant))
        await store.delete(key(tenant))
        with pytest.raises(SessionNotFoundError):
            await store.append(ref, made("1"))
        await created(store, key(tenant))  # of the same name, and yet another session
        with pytest.raises(SessionNotFoundError):
            await store.append(ref, made("1"))
        assert await texts(store, key(tenant)) == []


@KINDS
async def test_a_writer_of_another_tenant_finds_nothing(
    made: Any, store_url: str, tenant: str
) -> None:
    """Even with the number of the session at hand."""
    async with SqlSessionStore(store_url) as store:
        ref = await created(store, key(tenant))
        stranger = SessionRef(key(f"{tenant}-other"), ref.pk)
        with pytest.raises(SessionNotFoundError):
            await store.append(stranger, made("1"))


async def test_a_new_session_is_what_a_load_finds(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        shared = StateChange({"own": 1}, app={"of": "app"}, user={"of": "user"})
        await store.create(key(tenant, "first"), shared)
        second = await store.create(key(tenant, "second"), StateChange({"a": ["é", None]}), "title")
        loaded = await store.load(key(tenant, "second"), None)
    assert loaded is not None
    assert loaded.session == second
    assert (second.state, second.title) == ({"a": ["é", None]}, "title")
    assert (second.app_state, second.user_state) == ({"of": "app"}, {"of": "user"})


async def test_a_session_is_created_in_one_round_trip(
    postgres_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "TRY_AFTER", 3600.0)  # a probe is a round trip, too
    server = urlsplit(direct(postgres_url))
    async with (
        WireProxy(server.hostname or "", server.port or 5432) as proxy,
        SqlSessionStore(with_port(direct(postgres_url), proxy.port)) as store,
    ):
        await store.create(key(tenant, "first"))  # prepares the statement
        proxy.traffic.reset()
        await store.create(key(tenant, "second"), StateChange({"own": 1}))
        assert proxy.traffic.round_trips == 1


async def test_of_many_that_create_a_session_one_succeeds(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        tries = await asyncio.gather(
            *(store.create(key(tenant)) for _ in range(8)), return_exceptions=True
        )
    refused = [one for one in tries if isinstance(one, SessionExistsError)]
    assert len(refused) == 7


# --- faults on the way -----------------------------------------------------------------------


@asynccontextmanager
async def _held(url: str, where: SessionKey) -> AsyncGenerator[Any]:
    """Lock the session's row on another connection, so that an append waits in its transaction."""
    async with raw(url) as holder:
        await holder.execute("begin")
        await holder.execute("select from sessions where tenant = $1 for update", where.tenant)
        yield holder


async def _end_the_backend_blocked_by(url: str, holder: Any) -> None:
    pid = holder.get_server_pid()
    waiting = "select pid from pg_stat_activity where $1 = any(pg_blocking_pids(pid))"
    async with raw(url) as other:
        while (  # noqa: ASYNC110 - no event to await
            victim := await other.fetchval(waiting, pid)
        ) is None:
            await asyncio.sleep(0.01)
        assert await other.fetchval("select pg_terminate_backend($1, 5000)", victim)


@KINDS
async def test_a_connection_lost_in_mid_append_is_invisible(
    made: Any, postgres_url: str, tenant: str
) -> None:
    async with SqlSessionStore(postgres_url) as store:
        ref = await created(store, key(tenant))
        async with _held(postgres_url, key(tenant)) as holder:
            appending = asyncio.create_task(store.append(ref, made("1")))
            for _ in range(2):  # and a second time, in the retry
                await _end_the_backend_blocked_by(postgres_url, holder)
            assert not appending.done()
            await holder.execute("commit")
        assert (await appending).seq == 1
        await store.append(ref, plain("2"))
        loaded = await store.load(key(tenant), None)
        assert loaded is not None
        assert loaded.session.next_seq == 3


async def test_connections_lost_while_idle_are_invisible(postgres_url: str, tenant: str) -> None:
    async with SqlSessionStore(postgres_url) as store:
        ref = await created(store, key(tenant))
        await asyncio.gather(*(store.append(ref, plain(f"a{n}")) for n in range(8)))
        async with raw(postgres_url) as other:
            everybody = (
                "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()"
            )
            assert await other.fetchval(everybody) >= 1
        await asyncio.gather(*(store.append(ref, plain(f"b{n}")) for n in range(8)))
        loaded = await store.load(key(tenant), 0)
        assert loaded is not None
        assert loaded.session.message_count == 16
        await store.rename(key(tenant), "a title")


async def test_a_cancelled_append_leaves_the_store_usable(postgres_url: str, tenant: str) -> None:
    """Its connection may be in the middle of a protocol exchange: the pool discards it."""
    async with SqlSessionStore(postgres_url, pool_size=1) as store:
        ref = await created(store, key(tenant))
        async with _held(postgres_url, key(tenant)) as holder:
            appending = asyncio.create_task(store.append(ref, plain("1")))
            await until_waiting(postgres_url)
            appending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await appending
            await holder.execute("rollback")
        for number in range(3):
            await store.append(ref, plain(f"after-{number}"))
        loaded = await store.load(key(tenant), None)
        assert loaded is not None
        assert [row.event_id for row in loaded.messages][-3:] == ["after-0", "after-1", "after-2"]


LONG = "".join(chr(0x4E00 + number * 37 % 20_000) for number in range(256))  # 768 bytes


async def test_keys_too_long_for_an_index_are_refused(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        where = key(tenant, LONG, user=LONG)
        ref = await created(store, where)
        with pytest.raises(InvalidIdError, match="at most are allowed"):
            await store.create(key(tenant, LONG, user=LONG, app=LONG))
        for state in (StateChange(user={LONG * 4: 1}), StateChange(app={LONG * 4: 1})):
            with pytest.raises(InvalidIdError, match="state key"):
                await store.append(ref, said("e1", state=state))
            with pytest.raises(InvalidIdError, match="state key"):
                await store.create(key(tenant, "new"), state)
        artifacts = SqlArtifactStore(store.database)
        with pytest.raises(InvalidIdError, match="artifact name"):
            await artifacts.save(where, NewArtifact(LONG * 2, b"x", {}))
        fits = StateChange(session={LONG * 40: 1}, user={LONG[:200]: 1}, app={LONG: 1})
        await store.append(ref, said("e2", state=fits))
        assert await artifacts.save(where, NewArtifact(LONG, b"x", {})) == 0


@pytest.mark.parametrize(
    "special",
    [
        {"rewind": Rewind("turn-1")},
        {"blobs": (Blob("b", EVENT_DATA, None, b"much", {}),)},
    ],
    ids=["a rewind", "a file"],
)
async def test_an_append_that_may_take_long_does_not_block_the_event_loop_on_sqlite(
    special: dict[str, Any], sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqlSessionStore(sqlite_url) as store:
        ref = await created(store, key("t"))
        await store.append(ref, said("1"))

        async def blocks(*_: Any) -> None:
            raise AssertionError("A statement on the event loop's thread.")

        monkeypatch.setattr(InlineConnection, "run_statement", blocks)
        await store.append(ref, said("2", invocation_id="later", **special))
