"""The examples do what their pages say, from the first command to the last."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.environments import ADDRESS, free_address, reader
from tests.docs.pages import ROOT
from tests.docs.shell import Shell

EXAMPLES = ROOT / "examples"
FOLLOWED = ["moved", "openai_client", "support"]


@pytest.mark.parametrize("name", FOLLOWED)
async def test_it_can_be_followed(name: str, tmp_path: Path) -> None:
    address = free_address()
    folder = shutil.copytree(EXAMPLES / name, tmp_path / name)
    async with Shell(folder, reader(address)) as shell:
        await shell.follow(folder / "README.md", {ADDRESS: address})
