"""The table of ADK's samples has the samples that the script tries, in its order."""

import re
from pathlib import Path

from scripts.adk_samples import SAMPLES

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/adk-agents.md"


def test_the_table_has_the_samples_of_the_script() -> None:
    rows = re.findall(r"^\| `(\w+/\w+)` \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [(sample.folder, sample.shows) for sample in SAMPLES]
