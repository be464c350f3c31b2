"""Proof that a turn is held: a new one is believed, an old one is looked up."""

import pytest

from lango.errors import Fenced
from lango.store import holding
from lango.store.holding import Holding
from tests.store.desk import opened
from tests.store.rows import key


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
    async with opened(store_url) as desk:
        ref = await desk.session(key(tenant))
        await desk.submit(key(tenant))
        claim = await desk.claim(ref.pk, await desk.worker())
        held = Holding(desk.ledger.database, claim, lasts=1.0)
        await held.check()  # without any proof it looks
        await desk.workers.remove(claim.worker)
        taken = await desk.claim(ref.pk, await desk.worker())
        clocks.move(0.5, 0.5)
        await held.check()  # a proof half a second old is believed
        clocks.move(*passed)
        with pytest.raises(Fenced):
            await held.check()
        with pytest.raises(Fenced):
            await held.check()
        await Holding(desk.ledger.database, taken).check()


async def test_only_what_gets_through_is_a_proof(
    clocks: Clocks, store_url: str, tenant: str
) -> None:
    async with opened(store_url) as desk:
        ref = await desk.session(key(tenant))
        await desk.submit(key(tenant))
        claim = await desk.claim(ref.pk, await desk.worker())
        await desk.workers.remove(claim.worker)
        await desk.claim(ref.pk, await desk.worker())
        held = Holding(desk.ledger.database, claim, lasts=1.0)
        with pytest.raises(ValueError, match="lost"), held.proving():
            raise ValueError("lost")
        with pytest.raises(Fenced):
            await held.check()
        with held.proving():
            clocks.move(2.0, 2.0)  # the write took long: it proves nothing of its end
        with pytest.raises(Fenced):
            await held.check()
