"""Every path that stores entries advances the session's counters by the one rule."""

from collections.abc import AsyncGenerator, Sequence
from itertools import count
from typing import Any

import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lango.core.values import json_text
from lango.store.schema.tables import messages, sessions
from lango.store.sessions.counters import Counters, advance, rewound
from lango.store.sessions.entries import Entry, Rewind, SessionKey, StateChange
from lango.store.sessions.load import key_is
from lango.store.sessions.store import SqlSessionStore
from lango.store.transfer.bulk_import import ForeignSession, SessionImporter
from tests.store.rows import created, key, said

_numbers = count()
_CALLS = st.lists(st.sampled_from(["call-1", "call-2"]), max_size=1).map(tuple)
_TURNS = st.sampled_from(["", "turn-1", "turn-2", "turn-3"])
_TOKENS = st.integers(0, 40)


def _plain(turn: str, tokens: int, *, counts: bool) -> Entry:
    role = "user" if counts else "control"
    return said("", invocation_id=turn, tokens=tokens, counts=counts, role=role)


def _state_only(turn: str) -> Entry:
    change = {"k": 1}
    fields: dict[str, Any] = {"role": "control", "counts": False, "tokens": 0, "state_only": True}
    return said("", invocation_id=turn, changes='{"k":1}', state=StateChange(change), **fields)


def _sharing(turn: str, tokens: int) -> Entry:
    return said("", invocation_id=turn, tokens=tokens, state=StateChange({"s": 1}, {"u": 2}))


def _compaction(turn: str, tokens: int, scope: str = "") -> Entry:
    event = json_text(
        {"actions": {"compaction": {}}} | ({"isolation_scope": scope} if scope else {})
    )
    fields: dict[str, Any] = {"role": "control", "counts": False, "compaction": True}
    return said("", invocation_id=turn, tokens=tokens, event=event, scope=scope, **fields)


def _calling(turn: str, opens: tuple[str, ...], answers: tuple[str, ...], scope: str) -> Entry:
    calls: dict[str, Any] = {"opens_calls": opens, "answers_calls": answers, "responses": answers}
    return said("", invocation_id=turn, scope=scope, **calls)


_PLAIN = st.one_of(
    st.builds(_plain, _TURNS, _TOKENS, counts=st.booleans()),
    st.builds(_state_only, _TURNS),
    st.builds(_sharing, _TURNS, _TOKENS),
)
_SPECIAL = st.one_of(
    st.builds(_compaction, _TURNS, _TOKENS),
    st.builds(_calling, _TURNS, _CALLS, _CALLS, st.sampled_from(["", "", "task"])),
)
_ENTRIES = st.tuples(
    st.lists(_PLAIN, min_size=4, max_size=12), st.lists(_PLAIN | _SPECIAL, max_size=12)
).map(lambda parts: [*parts[0], *parts[1]])
# A failure names the one entry and its counters: a shorter list of entries would add nothing.
_ON_ONE_DATABASE = settings(
    max_examples=15,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def _numbered(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with their event ids."""
    for number, entry in enumerate(entries):
        entry.event_id = f"e{number}"
    return list(entries)


async def _row(store: SqlSessionStore, where: SessionKey) -> sa.Row[Any]:
    found = sa.select(sessions).where(key_is(where))
    return (await store.database.read(lambda connection: connection.execute(found))).one()


async def _cumulated(store: SqlSessionStore, pk: int) -> list[tuple[int, int]]:
    found = sa.select(messages.c.seq, messages.c.cum_tokens).order_by(messages.c.seq)
    condition = found.where(messages.c.session_pk == pk)
    rows = await store.database.read(lambda connection: connection.execute(condition))
    return [(row.seq, row.cum_tokens) for row in rows]


@given(entries=_ENTRIES)
@_ON_ONE_DATABASE
async def test_each_append_advances_the_row_by_the_rule(
    store_url: str, tenant: str, entries: list[Entry]
) -> None:
    """On PostgreSQL, this compares the append statement with the rule."""
    where = key(tenant, f"s{next(_numbers)}")
    cumulated: list[tuple[int, int]] = []
    async with SqlSessionStore(store_url) as store:
        ref = await created(store, where)
        before = await _row(store, where)
        assert Counters.of(before) == Counters()
        for entry in _numbered(entries):
            await store.append(ref, entry)
            after = await _row(store, where)
            expected = advance(Counters.of(before), entry)
            assert Counters.of(after) == expected
            begins_turn = entry.begins_turn(before.invocation_id)
            assert (after.last_activity != before.last_activity) == begins_turn
            if not entry.state_only:
                cumulated.append((before.next_seq, expected.total_tokens))
            before = after
        assert await _cumulated(store, before.pk) == cumulated


@given(entries=_ENTRIES)
@_ON_ONE_DATABASE
async def test_an_import_counts_as_the_appends_do(
    store_url: str, tenant: str, entries: list[Entry]
) -> None:
    where = key(tenant, f"s{next(_numbers)}")
    expected = Counters()
    for entry in _numbered(entries):
        expected = advance(expected, entry)

    async def batches() -> AsyncGenerator[list[Entry]]:
        yield entries[:5]
        yield entries[5:]

    async with SqlSessionStore(store_url) as store:
        await SessionImporter(store).import_session(ForeignSession(where, {}, 0.0, 0.0), batches)
        assert Counters.of(await _row(store, where)) == expected


def test_a_rewind_takes_back_what_its_rows_added() -> None:
    first = said("e1", tokens=5, opens_calls=("call-1",))
    then = said("e2", tokens=7, invocation_id="turn-2", answers_calls=("call-1",))
    before = advance(Counters(), first)
    after = rewound(advance(before, then), 2, tokens=7, messages=1, compacted_seq=None)
    assert (after.next_seq, after.total_tokens, after.message_count) == (3, 5, 1)
    assert after.retained_calls == before.retained_calls


async def test_the_summary_of_a_task_is_not_the_session_s(store_url: str, tenant: str) -> None:
    """Neither when it is stored, nor when a rewind looks for the newest one that is left."""
    where = key(tenant)
    async with SqlSessionStore(store_url) as store:
        ref = await created(store, where)
        entries = [
            said("", invocation_id="turn-1"),
            _compaction("c1", 1),
            _compaction("c2", 1, "task"),
            said("", invocation_id="turn-2"),
            _compaction("c3", 1),
        ]
        newest: list[int | None] = []
        for entry in _numbered(entries):
            await store.append(ref, entry)
            newest.append((await _row(store, where)).compacted_seq)
        assert newest == [None, 2, 2, 2, 5]
        rewind = said("rewind", rewind=Rewind("turn-2"), role="control", counts=False)
        await store.append(ref, rewind)
        assert (await _row(store, where)).compacted_seq == 2
