"""`lango init`: what it writes and prints leads on, with the extra that each step needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lango.cli.commands.init import SETTINGS
from lango.core.extras import PACKAGES, install
from lango.providers.registry import gateway_of
from tests.cli.running import run


def test_the_next_steps_name_their_extras(tmp_path: Path) -> None:
    made = run("init", str(tmp_path / "new"))
    real, served = made.out.split("For a real model")[1].split("lango doctor")
    assert f"  {install('openai')}\n" in real
    assert served.index(f"  {install('server')}\n") < served.index("  lango serve")
    named = set(re.findall(r"lango-adk\[(\w+)\]", made.out))
    assert named <= PACKAGES.keys()


@pytest.mark.parametrize("model", re.findall(r"# +model: (\S+)", SETTINGS))
def test_the_models_to_choose_from_name_their_extras(model: str) -> None:
    [line] = [line for line in SETTINGS.splitlines() if f"model: {model} " in line]
    extra = gateway_of(model)[0].extra
    assert re.findall(r"lango-adk\[(\w+)\]", line) == ([extra] if extra else [])
