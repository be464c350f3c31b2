"""`lango usage`: the same sums as the server's, for people."""

from __future__ import annotations

import pytest

from tests.cli.eventful_store import Shell, filled
from tests.cli.running import run


def test_nothing_was_called(sqlite_url: str, tenant: str) -> None:
    shell = Shell(sqlite_url, tenant)
    assert shell.out("usage").startswith("No model was called from ")
    output = shell.json("usage")
    assert (output["rows"], output["total"]["calls"]) == ([], 0)


def test_sums_for_people_and_for_scripts(store_url: str, tenant: str) -> None:
    filled(store_url, tenant)
    shell = Shell(store_url, tenant)
    heading, row, total, *notes = shell.out("usage", "--by", "model", "--by", "user").splitlines()
    figures = ["turns", "calls", "input", "cached", "output", "cost"]
    assert heading.split() == ["model", "user", *figures]
    assert row.split() == ["demo", "ann", "1", "3", "320", "8", "25", "-"]
    assert total.split() == ["total", "1", "3", "320", "8", "25", "-"]
    assert notes == ["None of these models has a known price."]
    output = shell.json("usage", "--since", "1h", "--app", "shop")
    assert (output["by"], output["total"]["attempts"]) == (["day"], 4)
    [day] = output["rows"]
    assert (day["input"], day["output"], day["model"]) == (320, 25, None)
    for none in (["--app", "x"], ["--user", "bob"], ["--until", "1d"]):
        assert shell.json("usage", *none)["total"]["calls"] == 0


@pytest.mark.parametrize("words", [["--by", "hour"], ["--since", "soon"]])
def test_options_that_make_no_sense(words: list[str], sqlite_url: str) -> None:
    done = run("usage", "--url", sqlite_url, *words)
    assert done.code == 2
    assert words[0] in done.err
