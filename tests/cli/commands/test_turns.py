"""`lango turns`: listed, drawn, cancelled, handed in again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faults.turns.workspace import Workspace, turn_process
from lango.core.turns.states import NewTurn
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.submit import SqlTurnStore
from tests.cli.eventful_store import Shell, filled, key


def queued(url: str, tenant: str, text: str = "later") -> str:
    """Hand in a turn that no worker is there for; its id."""

    async def submit() -> str:
        async with SqlSessionStore(url) as store:
            new = NewTurn({"text": text}, {"state": {"a": 1}})
            return (await SqlTurnStore(store.database).submit(key(tenant), new)).turn.id

    return asyncio.run(submit())


def test_an_empty_database_says_so(sqlite_url: str, tenant: str) -> None:
    shell = Shell(sqlite_url, tenant)
    assert shell.out("turns", "list") == "There are no such turns.\n"
    assert shell.json("turns", "list") == {"turns": [], "next": None}
    for command in (["show"], ["cancel"], ["retry"], ["deliver", "--call", "c", "--result", "1"]):
        output = shell.refused("turns", *command, "turn_0")
        assert output.startswith(
            "lango: Turn turn_0 not found. Run `lango turns list --url sqlite:"
        )


def test_the_list(store_url: str, tenant: str) -> None:
    public_id, shell = filled(store_url, tenant), Shell(store_url, tenant)
    heading, *rows = shell.out("turns", "list").splitlines()
    assert heading.split() == ["turn", "accepted", "state", "took", "tokens", "message"]
    assert ["completed" in rows[0], "answered" in rows[1]] == [True, True]
    assert rows[0].rstrip().endswith("(an answer)")
    assert "Divide, then pay." in rows[1]
    newest, oldest = shell.json("turns", "list")["turns"]
    assert (newest["number"], oldest["number"]) == (2, 1)
    assert {newest["session"], oldest["session"]} == {public_id}
    assert (newest["user"], newest["app"]) == ("ann", "shop")


def test_filters_and_pages(store_url: str, tenant: str) -> None:
    filled(store_url, tenant)
    shell = Shell(store_url, tenant)
    waiting = queued(store_url, tenant)

    def numbers(*options: str) -> list[int]:
        return [one["number"] for one in shell.json("turns", "list", *options)["turns"]]

    assert numbers("--status", "queued") == [3]
    assert numbers("--session", "s1", "--user", "ann", "--app", "shop", "--since", "1h") == [
        3,
        2,
        1,
    ]
    for none in (["--user", "bob"], ["--app", "x"], ["--until", "1d"], ["--since", "2999-01-01"]):
        assert numbers(*none) == []
    page = shell.json("turns", "list", "--limit", "1")
    assert page["next"] == waiting
    assert numbers("--cursor", waiting) == [2, 1]
    assert f"--cursor {waiting}" in shell.out("turns", "list", "--limit", "1")


def test_a_turn_is_drawn(sqlite_url: str, tenant: str) -> None:
    public_id, shell = filled(sqlite_url, tenant), Shell(sqlite_url, tenant)
    turn = shell.json("turns", "list")["turns"][1]["id"]
    drawn = shell.out("turns", "show", turn)
    lines = drawn.splitlines()
    assert lines[0].startswith(f"{turn} answered in ")
    assert f"  session  {public_id}" in lines
    assert "  tokens   320 in (8 cached), 25 out" in lines
    assert "  message  Divide, then pay." in lines
    names = [line[:18].strip() for line in lines if "█" in line or "░" in line]
    assert names == [
        *("queue", "attempt 1", "· model demo", "· retry demo", "· model demo", "· tool divide"),
        *("· model demo", "wait pay", "queue", "attempt 1", "· tool pay", "· model demo"),
    ]
    [wait] = [line for line in lines if line.startswith("wait pay")]
    assert "approved" in wait
    assert "model demo: RateLimitedError" in lines
    [divide] = [line for line in lines if line.startswith("tool divide: ")]
    assert "(err_" in divide
    output = shell.json("turns", "show", turn)
    assert [step["kind"] for step in output["steps"]].count("model") == 4


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_a_drawing_is_as_wide_as_the_terminal(
    columns: str, sqlite_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(sqlite_url, tenant)
    shell = Shell(sqlite_url, tenant)
    turn = shell.json("turns", "list")["turns"][1]["id"]
    monkeypatch.setattr("tests.cli.running.COLUMNS", columns)
    bars = [line for line in shell.out("turns", "show", turn).splitlines() if "█" in line]
    assert bars
    assert max(map(len, bars)) <= max(int(columns), 60)


def test_a_turn_that_waits_is_drawn_as_far_as_it_is(sqlite_url: str, tenant: str) -> None:
    filled(sqlite_url, tenant, answered=False)
    shell = Shell(sqlite_url, tenant)
    [turn] = shell.json("turns", "list")["turns"]
    lines = shell.out("turns", "show", turn["id"]).splitlines()
    assert lines[0].startswith(f"{turn['id']} input_required for ")
    [wait] = [line for line in lines if line.startswith("wait pay")]
    assert wait.endswith("open")


def test_a_turn_is_cancelled_and_retried_once(store_url: str, tenant: str) -> None:
    filled(store_url, tenant)
    shell = Shell(store_url, tenant)
    turn = queued(store_url, tenant)
    assert "is queued: only a failed or cancelled turn" in shell.refused("turns", "retry", turn)
    assert shell.out("turns", "cancel", turn) == f"Turn {turn} is cancelled.\n"
    assert shell.out("turns", "cancel", turn) == f"Turn {turn} is cancelled.\n"
    new = shell.out("turns", "retry", turn).strip()
    assert new != turn
    assert shell.out("turns", "retry", turn).strip() == new
    newest = shell.json("turns", "list")["turns"][0]
    assert (newest["id"], newest["state"], newest["message"]) == (new, "queued", "later")


def test_an_answer_is_not_retried(sqlite_url: str, tenant: str) -> None:
    filled(sqlite_url, tenant, answered=False)
    shell = Shell(sqlite_url, tenant)
    [waiting] = shell.json("turns", "list")["turns"]

    async def answered() -> str:
        async with SqlSessionStore(sqlite_url) as store:
            [call] = waiting["waits_for"]
            new = NewTurn({"answers": [{"call_id": call, "approved": True}]})
            turns = SqlTurnStore(store.database)
            return (await turns.answer(tenant, waiting["id"], call, new)).turn.id

    answer = asyncio.run(answered())
    shell.out("turns", "cancel", answer)
    assert "was an answer, which cannot be retried" in shell.refused("turns", "retry", answer)


def test_another_tenants_are_not_there(sqlite_url: str, tenant: str) -> None:
    filled(sqlite_url, tenant)
    turn = Shell(sqlite_url, tenant).json("turns", "list")["turns"][0]["id"]
    other = Shell(sqlite_url, "other")
    assert other.json("turns", "list")["turns"] == []
    for command in (["show"], ["cancel"], ["retry"], ["deliver", "--call", "c", "--result", "1"]):
        assert "not found. Run" in other.refused("turns", *command, turn)


def test_the_result_of_a_call_is_delivered_once(sqlite_url: str, tmp_path: Path) -> None:
    async def pending() -> tuple[str, str]:
        async with (
            turn_process(Workspace(sqlite_url, "app", tmp_path)) as process,
            process.worker(),
        ):
            turn = await process.turns.wait(await process.say('call errand {"name": "a"}'))
            return turn.id, turn.waits_for[0]

    turn, call = asyncio.run(pending())
    shell = Shell(sqlite_url, "")

    def deliver(result: str) -> tuple[str, ...]:
        return ("turns", "deliver", turn, "--call", call, "--result", result)

    assert "--result must be JSON" in shell.run(*deliver("done")).err
    new = shell.out(*deliver('{"status": "done"}')).strip()
    assert shell.out(*deliver('{"status": "done"}')).strip() == new
    assert "has been answered already" in shell.refused(*deliver("1"))
    newest, first = shell.json("turns", "list")["turns"]
    assert (newest["id"], newest["state"], newest["answers"]) == (new, "queued", call)
    assert (first["id"], first["state"]) == (turn, "answered")
