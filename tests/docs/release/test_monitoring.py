"""deploy/'s alerts and dashboard, and the pages for the operator: they name what there is."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any, Final

import pytest
import yaml

from lango.telemetry.metrics.recorder import Recorder
from scripts import dashboard
from tests.docs.pages import DOCS, ROOT
from tests.support.metric_rows import driven, names_in, rows, series_of
from tests.support.scrapes import HAS_PROMETHEUS, PROMTOOL, recording

PROMETHEUS: Final = ROOT / "deploy/prometheus"
GROUPS: Final = yaml.safe_load((PROMETHEUS / "lango.rules.yaml").read_text())["groups"]
RULES: Final[list[dict[str, Any]]] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS: Final = [rule for rule in RULES if "alert" in rule]
RECORDED: Final = {rule["record"] for rule in RULES if "record" in rule}
RUNBOOK: Final = (DOCS / "how-to/runbook.md").read_text()
PAGE: Final = (DOCS / "how-to/monitoring.md").read_text()
needs_prometheus = pytest.mark.skipif(not HAS_PROMETHEUS, reason="promtool is not installed")


@pytest.fixture(scope="module")
def known() -> set[str]:
    """The names of all series of a real scrape."""
    with recording() as recorder:
        return scraped(recorder)


def scraped(recorder: Recorder) -> set[str]:
    driven(recorder)
    return series_of(recorder)


@needs_prometheus
@pytest.mark.parametrize(
    "command",
    [
        ("check", "rules", "lango.rules.yaml"),
        ("check", "config", "prometheus.yaml"),
        ("test", "rules", "lango.test.yaml"),
    ],
    ids=" ".join,
)
def test_promtool_takes_them(command: tuple[str, ...]) -> None:
    checked = subprocess.run(
        [str(PROMTOOL), *command], cwd=PROMETHEUS, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_is_made_to_fire_and_to_be_silent() -> None:
    tests = yaml.safe_load((PROMETHEUS / "lango.test.yaml").read_text())["tests"]
    names = sorted(test["name"] for test in tests)
    wanted = [(f"{rule['alert']} fires", f"{rule['alert']} is silent") for rule in ALERTS]
    assert names == sorted(name for both in wanted for name in both)
    for test in tests:
        [asked] = test["promql_expr_test"]
        alert, _, says = test["name"].partition(" ")
        assert f'alertname="{alert}"' in asked["expr"]
        assert bool(asked["exp_samples"]) == (says == "fires")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.get("alert", rule.get("record"))))
def test_a_rule_names_metrics_that_there_are(rule: dict[str, Any], known: set[str]) -> None:
    names = names_in(rule["expr"])
    recorded = set(re.findall(r"lango:[a-z0-9_:]+", rule["expr"]))
    assert names or recorded or rule["expr"].startswith("up{")
    assert names <= known
    assert recorded <= RECORDED


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_an_alert_leads_to_its_entry_of_the_runbook(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (ROOT / page).read_text() == RUNBOOK
    entries = {anchor_of(title): text for title, text in entries_of(RUNBOOK)}
    assert rule["alert"] in entries[anchor].partition("```")[0]
    assert rule["labels"]["severity"] in {"page", "ticket"}


def test_every_entry_has_a_symptom_and_names_alerts_that_there_are() -> None:
    alerts = {rule["alert"] for rule in ALERTS}
    for title, text in entries_of(RUNBOOK):
        assert text.lstrip().startswith("**Symptom.**"), title
        assert set(re.findall(r"`(Lango[A-Z]\w+)`", text)) <= alerts


def entries_of(page: str) -> list[tuple[str, str]]:
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def anchor_of(title: str) -> str:
    return re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))


def test_the_dashboard_is_what_its_script_writes() -> None:
    assert dashboard.FILE.read_text("utf-8") == dashboard.text()


def test_the_dashboard_asks_for_metrics_that_there_are(known: set[str]) -> None:
    panels = json.loads(dashboard.FILE.read_text("utf-8"))["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(queries) > 25
    for query in queries:
        assert names_in(query)
        assert names_in(query) <= known, query
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_page_lists_every_metric() -> None:
    with recording() as recorder:
        real = list(rows(driven(recorder)))
    table = PAGE.partition("| metric | type |")[2].partition("\n\n")[0].splitlines()[2:]
    assert table == real


def test_every_metric_is_of_use() -> None:
    """A metric that no alert and no panel has is one that no operator looks at."""
    used = "".join(rule["expr"] for rule in RULES) + dashboard.text()
    with recording() as recorder:
        names = {family.name for family in driven(recorder).families.values()}
    assert {name for name in names if name not in used} == set()


def test_the_page_names_what_the_rules_record() -> None:
    assert set(re.findall(r"`(lango:[\w:]+)`", PAGE)) == RECORDED


def test_every_alert_and_entry_has_a_drill() -> None:
    files = (ROOT / "tests/telemetry/runbook").glob("test_*.py")
    named = set(re.findall(r'"([^"\n]+)"', "".join(file.read_text() for file in files)))
    assert {rule["alert"] for rule in ALERTS} - named == set()
    assert set(re.findall(r"^## (.+)$", RUNBOOK, re.MULTILINE)) - named == set()
