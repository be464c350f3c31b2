"""Tests that need bubblewrap: skipped where it is missing, but never in CI."""

import os
import shutil

import pytest

CI = os.environ.get("CI") == "true"
needs_bwrap = pytest.mark.skipif(
    not CI and shutil.which("bwrap") is None, reason="bubblewrap is not installed"
)
