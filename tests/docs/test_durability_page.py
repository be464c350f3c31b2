"""The page on durable turns: its example runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/explanation/durability.md"


def test_the_sweep_of_the_page_finds_its_agent_exact(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    # A few kills do: that every one leaves no trace is what the fault table shows.
    shorter = code.replace("more_kills=1)", "more_kills=1, count=3)")
    assert shorter != code
    (tmp_path / "sweep.py").write_text(shorter)
    ran = subprocess.run(
        [sys.executable, "sweep.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
