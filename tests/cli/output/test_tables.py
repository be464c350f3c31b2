"""Tables, times and completion at the terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest
import typer

from lango.cli.completing import app_names
from lango.cli.output.moments import age, moment_of, span
from lango.cli.output.tables import Column, money, print_page, print_table
from tests.cli.running import run

COLUMNS = (
    Column("id"),
    Column("who", is_text=True),
    Column("count", is_number=True, is_spare=True),
    Column("empty"),
    Column("title", is_text=True),
)
ROW = ("id_0123456789", "stranger", "12,345", "", "A title of some length [b]x[/b]")


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (80, "id_0123456789  stranger  12,345  A title of some length [b]x[/b]"),
        (50, "id_0123456789  stranger  12,345  A title of some …"),
        (44, "id_0123456789  stranger  A title of some le…"),
        (20, "id_0123456789  str…  A …"),
    ],
)
def test_a_table_fits_its_terminal(
    width: int,
    expected: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(COLUMNS, [ROW])
    _, shown, *rest = capsys.readouterr().out.splitlines()
    assert rest == []
    assert shown.rstrip() == expected[:width].rstrip()


def test_nothing_in_a_table_is_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_table([Column("text", is_text=True)], [("\x1b[31m[red]\nhi",)])
    assert capsys.readouterr().out.splitlines()[1].rstrip() == "\ufffd[31m[red] hi"


def test_times_as_people_give_them() -> None:
    now = datetime.now(UTC)
    for text, ago in (("90m", timedelta(minutes=90)), ("2w", timedelta(weeks=2))):
        assert abs(now - ago - moment_of(text)) < timedelta(minutes=1)
    assert moment_of("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert moment_of("2026-01-31T10:00+02:00") == datetime(2026, 1, 31, 8, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "7x", "-1d", "999999w", "2026-13-01"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no time"):
        moment_of(text)


def test_ages_and_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)

    class Stopped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return now.astimezone(tz)

    monkeypatch.setattr("lango.cli.output.moments.datetime", Stopped)
    ages = [age(now - timedelta(seconds=gone)) for gone in (-5, 5, 125, 7_300, 90_000, 700_000)]
    assert ages == ["now", "5 s ago", "2 min ago", "2 h ago", "1 d ago", "1 w ago"]
    spans = [span(seconds) for seconds in (0.0004, 0.25, 2.44, 125, 7_300)]
    assert spans == ["0 ms", "250 ms", "2.4 s", "2 min 5 s", "2 h 1 min"]


def test_money() -> None:
    assert [money(cost) for cost in (None, 0.0, 0.01234, 1234.5)] == [
        *("", "$0.0000", "$0.0123", "$1,234.50")
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("1", "shop"), ("2", "shop")], ["id", "1", "2", "All: app shop."]),
        ([("1", "shop"), ("2", "desk")], ["id  app", "1   shop", "2   desk"]),
        ([("1", "")], ["id", "1"]),
    ],
)
def test_what_a_page_has_in_common_is_said_once(
    rows: list[tuple[str, str]], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    print_page((Column("id"), Column("app", is_text=True, is_shared=True)), rows, "more")
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert shown == [*expected, "There are more: --cursor more"]


def test_apps_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert app_names("") == []
    agent = "{agent: {model: 'scripted:demo'}}"
    Path("lango.yaml").write_text(f"apps: {{shop: {agent}, support: {agent}, other: {agent}}}")
    assert app_names("s") == ["shop", "support"]
    Path("lango.yaml").write_text("apps: 1")
    assert app_names("s") == []


def test_the_shell_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_LANGO_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "lango turns li")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert run().out.strip() == "list"
