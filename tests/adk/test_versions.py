"""The versions of ADK whose turns resume."""

import re

from lango.adk.versions import ADK_VERSION, SWEPT


def test_adk_says_its_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", ADK_VERSION)


def test_the_locked_version_is_swept() -> None:
    assert "2.13.0" in SWEPT
