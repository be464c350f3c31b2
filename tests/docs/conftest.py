"""What the tests of pages and packages share: the package as it would be released."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built from this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    command = ["uv", "build", "--quiet", "--out-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, timeout=300)
    return folder
