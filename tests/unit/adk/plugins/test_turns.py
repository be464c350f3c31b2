"""What a plugin remembers of turns."""

import pytest

from lango.adk.plugins import turns
from lango.adk.plugins.turns import PerTurn


def test_each_turn_has_its_own_until_it_ends() -> None:
    lists: PerTurn[list[int]] = PerTurn(list)
    lists["a"].append(1)
    lists["b"].append(2)
    assert (lists["a"], lists["b"]) == ([1], [2])
    lists.end("a")
    lists.end("never begun")
    assert (lists["a"], len(lists)) == ([], 2)


def test_turns_that_never_end_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MAX_TURNS", 3)
    lists: PerTurn[list[int]] = PerTurn(list)
    for name in "abcde":
        lists[name].append(1)
    assert len(lists) == 3
    assert (lists["c"], lists["e"]) == ([1], [1])
