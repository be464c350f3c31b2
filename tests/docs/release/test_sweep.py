"""The table of ADK's versions, which `make sweep` writes."""

from typing import Any

from scripts.sweep import table


def line(adk: str, step: str, part: str = "1/1", outcome: str = "ok") -> dict[str, Any]:
    return {
        **{"adk": adk, "step": step, "part": part, "outcome": outcome},
        **{"commit": "abc1234", "date": "2026-11-18", "seconds": 1.0},
    }


def cells(*lines: dict[str, Any]) -> list[str]:
    return [cell.strip() for cell in table(lines)[-1].strip("|").split("|")]


def test_a_step_that_was_not_run_says_so() -> None:
    assert cells(line("2.12.0", "canaries")) == [
        *("2.12.0", "ok (2026-11-18, abc1234)", "not run", "not run"),
    ]


def test_slices_count_once_all_have_run() -> None:
    parts = [line("2.12.0", "kills", f"{number}/2") for number in (1, 2)]
    assert cells(parts[0])[-1] == "ok, 1 of 2 parts (2026-11-18, abc1234)"
    assert cells(*parts)[-1] == "ok (2026-11-18, abc1234)"
    failed = line("2.12.0", "kills", "2/2", "failed")
    assert cells(*parts, failed)[-1] == "failed in 2/2 (2026-11-18, abc1234)"
    assert cells(failed, *parts)[-1] == "ok (2026-11-18, abc1234)"


def test_versions_have_a_row_each() -> None:
    rows = table([line("2.13.0", "check"), line("2.12.0", "check")])[2:]
    assert [row.split(" ")[1] for row in rows] == ["2.12.0", "2.13.0"]
