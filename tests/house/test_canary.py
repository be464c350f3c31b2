"""A canary fails with a sentence that names ADK's part, lango's use of it, and the file."""

from collections.abc import Callable

import pytest

from tests.support.canary import Canary

CANARY = Canary.of_adk("runners.py", "a test")


def function(first: int, second: int, third: int = 0) -> int:
    return first + second + third


@pytest.mark.parametrize(
    ("check", "missing"),
    [
        (lambda: CANARY.part("_gone"), "package no longer has the module google.adk._gone"),
        (lambda: CANARY.part("runners", "Runner._gone"), "runners.Runner no longer has _gone"),
        (lambda: CANARY.part("runners", "_gone.run"), "google.adk.runners no longer has _gone"),
        (
            lambda: CANARY.takes(function, "second", "first"),
            "function no longer has exactly the parameters second, first",
        ),
        (
            lambda: CANARY.takes(function, "first"),
            "function no longer has exactly the parameters first",
        ),
        (
            lambda: CANARY.contains(function, "first +", "fourth +"),
            "function no longer has `fourth \\+` in its source",
        ),
        (lambda: CANARY.check(False, "loop", "an end"), "loop no longer has an end"),
    ],
)
def test_a_canary_names_the_missing_part(check: Callable[[], object], missing: str) -> None:
    end = "; lango uses it for a test; see lango/adk/compat/runners.py"
    with pytest.raises(pytest.fail.Exception, match=rf"^ADK's .*{missing}{end}$"):
        check()


def test_a_canary_is_silent_about_parts_that_exist() -> None:
    runner = CANARY.part("runners", "Runner")
    CANARY.takes(function, "first", "second")
    CANARY.takes(function, "first", "second", "third")
    CANARY.contains(runner, "class Runner")
    CANARY.check(True, "loop", "an end")
