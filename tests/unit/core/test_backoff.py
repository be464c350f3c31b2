"""How long to wait before trying again."""

from hypothesis import given
from hypothesis import strategies as st

from lango.core.backoff import delays

seconds = st.floats(0.001, 10)


def test_the_waits_grow_up_to_the_cap() -> None:
    whole = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    for wait, longest in zip(delays(9), whole, strict=True):
        assert longest / 2 <= wait <= longest


@given(st.integers(0, 20), seconds, seconds)
def test_every_wait_is_between_half_and_all_of_its_step(
    tries: int, first: float, cap: float
) -> None:
    waits = list(delays(tries, first=first, cap=cap))
    assert len(waits) == tries
    assert all(wait <= max(first, cap) for wait in waits)
    step = first
    for wait in waits:
        assert step / 2 <= wait <= step
        step = min(2 * step, cap)


def test_two_waiters_do_not_wait_alike() -> None:
    assert list(delays(5)) != list(delays(5))


def test_no_tries_no_waits() -> None:
    assert list(delays(0)) == []
