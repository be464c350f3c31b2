"""The pictures are those that their script draws, and show the states that the code has."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lango.core.turns.states import NEXT
from scripts.pictures import IMAGES, PICTURES

SVG = "{http://www.w3.org/2000/svg}"
PATHS = sorted(IMAGES.glob("*.svg"))


def root_of(path: Path) -> ElementTree.Element:
    return ElementTree.fromstring(path.read_text("utf-8"))  # noqa: S314 - our own file


@pytest.mark.parametrize("name", PICTURES)
def test_the_file_is_what_the_script_draws(name: str) -> None:
    assert (IMAGES / f"{name}.svg").read_text("utf-8") == PICTURES[name](), "run `make pictures`"


def test_the_states_of_a_turn_are_those_of_the_code() -> None:
    root = root_of(IMAGES / "turn-states.svg")
    drawn = {element.get("data-state") for element in root.iter(f"{SVG}rect")} - {None}
    arrows = {(path.get("data-from"), path.get("data-to")) for path in root.iter(f"{SVG}path")}
    assert drawn == set(NEXT)
    assert arrows - {(None, None)} == {
        (before, after) for before, states in NEXT.items() for after in states
    }


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_picture_is_readable_on_light_and_dark_and_loads_nothing(path: Path) -> None:
    written = path.read_text("utf-8")
    assert "prefers-color-scheme: dark" in written
    assert not re.search(r"<(script|image|use|foreignObject)\b|href=|@import|url\((?!#)", written)
    assert root_of(path).find(f"{SVG}title") is not None


def test_the_recording_shows_a_turn_that_outlives_its_worker() -> None:
    shown = " ".join(" ".join(root_of(IMAGES / "recording.svg").itertext()).split())
    parts = ["attempt 1", "tool.finished", "$ kill -9", "attempt 2", "message.completed"]
    assert re.search(".*".join(map(re.escape, parts)), shown)
    [rolled] = re.findall(r"tool\.finished roll_dice gave (\d+)", shown)
    answer = shown.partition("message.completed ")[2]
    assert answer.startswith(f'I asked: roll_dice gave {{"result":{rolled}}}.')
