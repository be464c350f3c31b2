"""Proof that a turn is held: a new one is believed, an old one is looked up."""

from types import SimpleNamespace

import pytest
from google.adk.events.event import Event
from google.genai import types

from lango.adk.durable.claimed.sessions import ClaimedSessions
from lango.adk.sessions.service import SessionServiceAdapter
from lango.errors import Fenced
from lango.store.db.database import Database
from lango.store.turns import holding
from lango.store.turns import rows as turn_rows
from lango.store.turns.holding import Holding
from lango.store.turns.rows import Claim
from tests.store.rows import key
from tests.store.turns.turn_stores import opened


class Clocks:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.now = (100.0, 1000.0)

    def __call__(self) -> tuple[float, float]:
        return self.now

    def move(self, monotonic: float, wall: float) -> None:
        self.now = (self.now[0] + monotonic, self.now[1] + wall)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    moved = Clocks()
    monkeypatch.setattr(holding, "_clocks", moved)
    return moved


@pytest.mark.parametrize("passed", [(2.0, 2.0), (2.0, 0.0), (0.0, 2.0), (0.5, -5.0)])
async def test_a_lost_turn_is_found_out(
    passed: tuple[float, float], clocks: Clocks, store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        await stores.submit(key(tenant))
        claim = await stores.claim(ref.pk, await stores.worker())
        held = Holding(stores.ledger.database, claim, lasts=1.0)
        await held.check()  # without any proof it looks
        await stores.workers.remove(claim.worker)
        taken = await stores.claim(ref.pk, await stores.worker())
        clocks.move(0.5, 0.5)
        await held.check()  # a proof half a second old is believed
        clocks.move(*passed)
        with pytest.raises(Fenced):
            await held.check()
        with pytest.raises(Fenced):
            await held.check()
        await Holding(stores.ledger.database, taken).check()


async def test_only_what_gets_through_is_a_proof(
    clocks: Clocks, store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        await stores.submit(key(tenant))
        claim = await stores.claim(ref.pk, await stores.worker())
        await stores.workers.remove(claim.worker)
        await stores.claim(ref.pk, await stores.worker())
        held = Holding(stores.ledger.database, claim, lasts=1.0)
        with pytest.raises(ValueError, match="lost"), held.proving():
            raise ValueError("lost")
        with pytest.raises(Fenced):
            await held.check()
        with held.proving():
            clocks.move(2.0, 2.0)  # the write took long: it proves nothing of its end
        with pytest.raises(Fenced):
            await held.check()


async def test_an_event_that_was_there_already_proves_nothing(store_url: str, tenant: str) -> None:
    """A woken worker repeats what it had written: the row is found, and the fence not asked."""
    async with opened(store_url) as stores:
        where = key(tenant)
        ref = await stores.session(where)
        await stores.submit(where)
        claim = await stores.claim(ref.pk, await stores.worker())
        around = SessionServiceAdapter(stores.sessions, tenant=tenant)
        sessions = ClaimedSessions(around, claim)
        session = await sessions.get_session(
            app_name=where.app_name, user_id=where.user_id, session_id=where.session_id
        )
        assert session is not None
        event = Event(author="root", content=types.ModelContent("once"), invocation_id="i")
        again = event.model_copy(deep=True)
        await sessions.append_event(session, event)
        await stores.workers.remove(claim.worker)
        await stores.claim(ref.pk, await stores.worker())
        sessions.holding = Holding(stores.ledger.database, claim)
        await sessions.append_event(session, again)
        with pytest.raises(Fenced):
            await sessions.holding.check()


async def test_a_reply_read_too_late_is_no_proof(
    clocks: Clocks, store_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was frozen while the reply was under way, and another worker has the turn."""
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        await stores.submit(key(tenant))
        claim = await stores.claim(ref.pk, await stores.worker())
        looks: list[bool] = []

        async def frozen(database: Database, asked: Claim) -> bool:
            looks.append(await turn_rows.still_held(database, asked))
            if len(looks) == 1:
                clocks.move(5.0, 5.0)
                await stores.workers.remove(claim.worker)
                await stores.claim(ref.pk, await stores.worker())
            return looks[-1]

        monkeypatch.setattr(holding, "turn_rows", SimpleNamespace(still_held=frozen))
        with pytest.raises(Fenced):
            await Holding(stores.ledger.database, claim, lasts=1.0).check()
        assert looks == [True, False]
