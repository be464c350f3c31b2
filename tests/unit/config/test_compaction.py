"""The settings of summaries, and what is said of wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from lango.config.compaction import CompactionSettings
from lango.config.settings import Settings


def test_a_trigger_is_enough() -> None:
    by_turns = CompactionSettings(turns=20)
    assert (by_turns.overlap, by_turns.tokens) == (0, None)
    assert CompactionSettings(tokens=20_000).keep_events == 20


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "give `turns` or `tokens`"),
    ({"overlap": 1, "tokens": 10}, "`overlap` needs `turns`"),
    ({"keep_events": 1, "turns": 10}, "`keep_events` needs `tokens`"),
    ({"turns": 0}, "greater than or equal to 1"),
    ({"turns": 2, "prompt": "Be short."}, "must contain {conversation_history}"),
    ({"turns": 2, "prompt": "{conversation_history} {other}"}, "write other braces twice"),
]


@pytest.mark.parametrize(("given", "problem"), WRONG)
def test_what_adk_would_refuse_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as caught:
        CompactionSettings.model_validate(given)
    assert problem in str(caught.value)


def test_a_prompt_has_a_placeholder_for_the_conversation() -> None:
    prompt = "As JSON, {{}}: {conversation_history}"
    assert CompactionSettings(turns=2, prompt=prompt).prompt == prompt


def test_a_summary_comes_before_the_budget_cuts() -> None:
    app = {"agent": {"model": "scripted:demo"}, "compaction": {"tokens": 32_000}}
    with pytest.raises(ValidationError, match=r"apps\.demo\.compaction\.tokens must be below"):
        Settings.model_validate({"apps": {"demo": app}})
    Settings.model_validate({"apps": {"demo": app}, "history": {"token_budget": None}})
