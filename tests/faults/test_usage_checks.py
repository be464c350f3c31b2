"""What LEDGER counts as late."""

from faults.store.usage import awake


def test_the_time_in_which_a_worker_is_frozen_does_not_count() -> None:
    frozen = [(2.0, 4.0), (9.0, 12.0)]
    assert awake(1.0, 10.0, frozen) == 6.0
    assert awake(5.0, 8.0, frozen) == 3.0
    assert awake(10.0, 9.0, frozen) == -1.0
