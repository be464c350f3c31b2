"""`lango chat` and `lango run` resume a turn after a kill in the middle of an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.processes import Running
from tests.cli.slow_shop import DOOMED, SLOW, WORDS, Shop
from tests.cli.terminal import Terminal

NOTE = "Finishing an earlier turn of this session first…"
ANSWER = f"You said: {WORDS}"


@pytest.fixture
def shop(tmp_path: Path, store_url: str, tenant: str) -> Shop:
    """On either database."""
    made = Shop(tmp_path, store_url, tenant)
    made.write()
    return made


def check(shop: Shop, session: str) -> None:
    """The answer is there, once, and so is the one after it."""
    assert shop.history(session) == [
        *(("user", WORDS), ("assistant", ANSWER)),
        *(("user", "next"), ("assistant", "You said: next")),
    ]
    assert [(turn.state, turn.attempts) for turn in shop.turns(session)] == [
        *(("completed", 2), ("completed", 1))
    ]


def test_a_killed_run_is_resumed(shop: Shop) -> None:
    with Running(shop.folder, "run", "--session", "s1", WORDS, environment=DOOMED) as doomed:
        doomed.wait_for("word3")
        doomed.process.kill()
        doomed.end()
    with Running(shop.folder, "run", "--session", "s1", "next") as second:
        assert second.end() == 0, second.err
    assert NOTE in second.err
    first, after = second.out.split("You said: next")
    assert first.endswith(f"{ANSWER}\n")
    assert after == "\n"
    check(shop, "s1")


def test_a_killed_chat_is_resumed(shop: Shop) -> None:
    with Terminal(shop.folder, DOOMED) as terminal:
        terminal.lango("chat", "--session", "s1")
        terminal.wait_for("you> ")
        terminal.type(WORDS)
        terminal.wait_for("You said: word0 word1 word2 word3")
        terminal.kill()
        terminal.wait_for("Killed")
        terminal.type("export SHOP_DELAY=0")
        terminal.lango("chat", "--session", "s1")
        terminal.wait_for(NOTE)
        screen = terminal.wait_for("you> ", times=2)
        assert ANSWER in screen.split(NOTE)[1]
        terminal.type("next")
        terminal.wait_for("You said: next")
        terminal.wait_for("you> ", times=3)
        terminal.press("C-d")
        terminal.wait_for("To continue: ")
    check(shop, "s1")


@pytest.fixture
def local_shop(tmp_path: Path, sqlite_url: str) -> Shop:
    """On a file that several processes use."""
    made = Shop(tmp_path, sqlite_url, "t")
    made.write()
    return made


def test_a_turn_that_lives_is_waited_for_and_not_taken(local_shop: Shop) -> None:
    folder = local_shop.folder
    with Running(folder, "run", "--session", "s1", "call hold {}") as living:
        living.wait_for("→ hold")
        with Running(folder, "run", "--session", "s1", "next") as second:
            second.wait_for("→ hold")
            (folder / "go").touch()
            assert second.end() == 0, second.err
        assert living.end() == 0, living.err
    answer = 'I asked: hold gave {"result":"released"}.'
    assert living.out == f"{answer}\n"
    assert second.out == f"{answer}\nYou said: next\n"
    assert [(turn.state, turn.attempts) for turn in local_shop.turns("s1")] == [
        *(("completed", 1), ("completed", 1))
    ]


def test_turns_of_other_sessions_are_left_alone(local_shop: Shop) -> None:
    folder = local_shop.folder
    with Running(folder, "run", "--session", "s1", "call hold {}") as doomed:
        doomed.wait_for("→ hold")
        doomed.process.kill()
        doomed.end()
    with Running(folder, "run", "--session", "s2", WORDS, environment=SLOW) as other:
        assert other.end() == 0, other.err  # this takes longer than the dead time
    assert (other.out, NOTE in other.err) == (f"{ANSWER}\n", False)
    assert [turn.state for turn in local_shop.turns("s1")] == ["running"]
