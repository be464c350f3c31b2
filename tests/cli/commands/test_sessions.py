"""`lango sessions`: listed, shown, taken along, brought back, deleted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.eventful_store import Shell, filled
from tests.cli.running import run


def test_an_empty_database_says_so(sqlite_url: str, tenant: str) -> None:
    shell = Shell(sqlite_url, tenant)
    assert shell.out("sessions", "list") == "There are no such sessions.\n"
    assert shell.json("sessions", "list") == {"sessions": [], "next": None}
    assert "Session s1 not found." in shell.refused("sessions", "show", "s1")


def test_the_list(store_url: str, tenant: str) -> None:
    public_id, shell = filled(store_url, tenant), Shell(store_url, tenant)
    heading, row, common = shell.out("sessions", "list").splitlines()
    assert heading.split() == ["session", "active", "status", "messages", "tokens", "title"]
    assert row.split()[0] == public_id
    assert "completed" in row
    assert "Ann's \ufffd[31mtrip" in row
    assert common == "All: app shop, user ann."
    [output] = shell.json("sessions", "list")["sessions"]
    assert (output["id"], output["alias"], output["status"]) == (public_id, "s1", "completed")


@pytest.mark.parametrize(
    ("options", "is_there"),
    [
        (["--app", "shop", "--user", "ann", "--status", "completed"], True),
        (["--since", "1h", "--title", "TRIP"], True),
        (["--until", "2020-01-01"], False),
        (["--since", "2999-01-01T00:00+01:00"], False),
        (["--app", "other"], False),
        (["--user", "bob"], False),
        (["--status", "failed"], False),
    ],
)
def test_filters(options: list[str], is_there: bool, sqlite_url: str, tenant: str) -> None:
    filled(sqlite_url, tenant, answered=True)
    found = Shell(sqlite_url, tenant).json("sessions", "list", *options)["sessions"]
    assert bool(found) == is_there


def test_pages_go_on(sqlite_url: str, tenant: str, tmp_path: Path) -> None:
    first, shell = filled(sqlite_url, tenant), Shell(sqlite_url, tenant)
    file = str(tmp_path / "a")
    shell.out("sessions", "export", first, file)
    shell.out("sessions", "import", file, "--user", "bob", "--session", "s2")
    page = shell.json("sessions", "list", "--limit", "1")
    rest = shell.json("sessions", "list", "--limit", "1", "--cursor", page["next"])
    assert {page["sessions"][0]["user"], rest["sessions"][0]["user"]} == {"ann", "bob"}
    assert rest["next"] is None
    shown = shell.out("sessions", "list", "--limit", "1").splitlines()
    assert shown[-1] == f"There are more: --cursor {page['next']}"
    heading = shell.out("sessions", "list").splitlines()[0]
    assert "user" in heading.split()


def test_one_is_shown_with_its_newest_messages(store_url: str, tenant: str) -> None:
    public_id, shell = filled(store_url, tenant), Shell(store_url, tenant)
    shown = shell.out("sessions", "show", public_id, "-n", "2")
    assert shown.startswith(f"{public_id}\n")
    assert "user      ann" in shown
    assert shown.rstrip().endswith("Paid.")
    assert shown.count(" tokens\n") == 2
    output = shell.json("sessions", "show", "s1", "--messages", "1")
    assert (output["id"], output["newest"][0]["content"]) == (public_id, "Paid.")


def test_a_name_that_two_have(sqlite_url: str, tenant: str, tmp_path: Path) -> None:
    first, shell = filled(sqlite_url, tenant), Shell(sqlite_url, tenant)
    file = str(tmp_path / "a")
    shell.out("sessions", "export", first, file)
    other = shell.json("sessions", "import", file, "--user", "bob")["id"]
    refused = shell.refused("sessions", "show", "s1")
    assert "Several sessions are called s1" in refused
    assert first in refused
    assert other in refused
    assert shell.json("sessions", "show", "s1", "--user", "bob")["id"] == other


def test_an_export_is_brought_back(store_url: str, tenant: str, tmp_path: Path) -> None:
    public_id, shell = filled(store_url, tenant), Shell(store_url, tenant)
    file = tmp_path / "trip.jsonl"
    output = shell.out("sessions", "export", "s1", str(file))
    assert output == f"{file}: {file.stat().st_size:,} bytes.\n"
    before = shell.json("sessions", "show", "s1", "-n", "100")
    assert "exists already" in shell.refused("sessions", "export", "s1", str(file))
    shell.out("sessions", "export", "s1", str(file), "--force")
    assert "has a session s1 in shop already" in shell.refused("sessions", "import", str(file))
    assert shell.out("sessions", "delete", public_id, "--yes") == "Deleted.\n"
    done = shell.json("sessions", "import", str(file))
    assert (done["id"], done["user"], done["artifacts"]) == (public_id, "ann", 0)
    assert shell.json("sessions", "show", "s1", "-n", "100") == {**before, "status": None}
    assert list(tmp_path.glob("*.part")) == []


def test_an_export_to_standard_output(
    sqlite_url: str, tenant: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    filled(sqlite_url, tenant)
    arguments = ["sessions", "export", "s1", "-", "--url", sqlite_url, "--tenant", tenant]
    from lango.cli.root import app

    app(arguments, standalone_mode=False)
    lines = capfdbinary.readouterr().out.splitlines()
    assert [json.loads(line)["kind"] for line in (lines[0], lines[-1])] == ["lango.session", "end"]


def test_files_that_are_none(sqlite_url: str, tenant: str, tmp_path: Path) -> None:
    shell, file = Shell(sqlite_url, tenant), tmp_path / "x"
    assert "cannot be read" in shell.refused("sessions", "import", str(file))
    file.write_text("hello\n")
    assert "not JSON" in shell.refused("sessions", "import", str(file))
    filled(sqlite_url, tenant)
    nowhere = str(tmp_path / "no" / "folder")
    assert "cannot be written" in shell.refused("sessions", "export", "s1", nowhere)


def test_deleting_asks_first(sqlite_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    public_id, shell = filled(sqlite_url, tenant), Shell(sqlite_url, tenant)
    monkeypatch.setattr("typer.confirm", _no)
    done = shell.run("sessions", "delete", "s1")
    assert done.code == 1
    assert f"{public_id} \"Ann's" in done.out
    assert shell.json("sessions", "list")["sessions"]
    assert "Session nope not found" in shell.refused("sessions", "delete", public_id, "nope", "-y")
    assert shell.json("sessions", "list")["sessions"]
    shell.out("sessions", "delete", public_id, "-y")
    assert shell.json("sessions", "list")["sessions"] == []


def _no(question: str, *, abort: bool) -> None:
    assert (question, abort) == ("Delete this session?", True)
    raise SystemExit(1)


def test_another_tenants_are_not_there(sqlite_url: str, tenant: str) -> None:
    public_id = filled(sqlite_url, tenant)
    other = Shell(sqlite_url, "other")
    assert other.json("sessions", "list")["sessions"] == []
    for words in (["show", public_id], ["export", public_id], ["delete", public_id, "-y"]):
        assert "not found. Run" in other.refused("sessions", *words)


@pytest.mark.parametrize(
    "words",
    [["--status", "odd"], ["--since", "yesterday"], ["--limit", "0"], ["--since", "9999999w"]],
)
def test_options_that_make_no_sense(words: list[str], sqlite_url: str) -> None:
    done = run("sessions", "list", "--url", sqlite_url, *words)
    assert done.code == 2
    assert words[0] in done.err
