"""Points where a test can end the process."""

import pytest

from lango.core import failpoints


def test_an_unarmed_failpoint_does_nothing() -> None:
    assert failpoints.armed is None
    failpoints.failpoint("append.before")


def test_an_armed_failpoint_receives_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[str] = []
    monkeypatch.setattr(failpoints, "armed", passed.append)
    failpoints.failpoint("append.before")
    failpoints.failpoint("append.after")
    assert passed == ["append.before", "append.after"]


def test_what_it_raises_goes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(name: str) -> None:
        raise SystemExit(name)

    monkeypatch.setattr(failpoints, "armed", die)
    with pytest.raises(SystemExit, match=r"append\.before"):
        failpoints.failpoint("append.before")
