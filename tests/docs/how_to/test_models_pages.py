"""The pages on models: what they show runs, and their table is the registry's."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from lango.providers.registry import GATEWAYS, Wire

HOW_TO: Final = Path(__file__).resolve().parents[3] / "docs/how-to"
WIRES: Final[dict[Wire, str]] = {
    "chat": "Chat Completions",
    "responses": "Responses",
    "anthropic": "Messages",
    "gemini": "Gemini",
    "scripted": "none",
}


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (HOW_TO / page).read_text(), re.DOTALL)


def run(folder: Path, *arguments: str) -> str:
    keys = {gateway.key: "no-key" for gateway in GATEWAYS if gateway.key}
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | keys,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_every_block_on_choosing_a_model_runs(tmp_path: Path) -> None:
    shown = blocks("models.md")
    assert len(shown) >= 7
    (tmp_path / "page.py").write_text("\n".join(shown) + "\nprint('to the end')\n")
    assert "to the end" in run(tmp_path, "page.py")


def test_the_table_of_providers_is_the_registry() -> None:
    page = (HOW_TO / "models.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| (.+?) \| (.+?) \| ?(.*?) ?\|$", page, re.MULTILINE)
    result = {
        name: (wire, key.strip("`"), url) for name, wire, key, url in rows if wire in WIRES.values()
    }
    assert result == {
        gateway.name: (WIRES[gateway.wire], gateway.key or "none needed", gateway.base_url)
        for gateway in GATEWAYS
    }
