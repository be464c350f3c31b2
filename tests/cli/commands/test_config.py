"""`lango config`: what is in force, where it was said, and the schema editors read."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.cli.processes import lango
from tests.cli.running import run

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)


def test_show_tells_where_a_value_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("lango.yaml").write_text("store: {tenant: acme}\n")
    monkeypatch.setenv("LANGO_PROVIDERS__OPENAI__API_KEY", "sk-canary")
    shown = run("config", "show")
    assert shown.code == 0
    assert "canary" not in shown.out
    rows = {row["key"]: row for row in json.loads(run("config", "show", "--json").out)}
    assert rows["store.tenant"] == {"key": "store.tenant", "value": "acme", "from": "lango.yaml"}
    assert rows["providers.openai.api_key"]["value"] == "**********"
    assert rows["limits.model_calls"]["from"] == "default"


def test_a_wrong_file_is_a_line_and_no_trace() -> None:
    Path("lango.yaml").write_text("store: {tennant: acme}\n")
    shown = run("config", "show")
    assert shown.code == 1
    assert shown.err == (
        "lango: lango.yaml: store.tennant: there is no such key. Did you mean tenant?\n"
    )


def test_the_schema_is_the_published_one() -> None:
    printed = run("config", "schema").out
    published = ROOT / "docs/reference/lango.schema.json"
    assert printed == published.read_text(), (
        "write it anew: lango config schema > " + published.name
    )


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("apps: {a: {agent: {model: 'openai:x', tools: ['builtin:time']}}}", True),
        ("apps: {a: 'my.module:root_agent'}", True),
        ("apps: {a: {agent: {modle: x}}}", False),
        ("stroe: {}", False),
    ],
)
def test_editors_judge_as_we_do(text: str, valid: bool) -> None:
    schema = json.loads(run("config", "schema").out)
    judge = jsonschema.Draft202012Validator(schema)
    assert judge.is_valid(yaml.safe_load(text)) is valid  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.parametrize("options", [(), ("-v",)], ids=["plain", "verbose"])
def test_a_variable_that_sets_nothing_is_named_once(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    environment = {"LANGO_PROT": "1", "LANGO_PORT": "tcp://10.0.0.1:80"}
    for command in (("config", "show"), ("doctor",)):
        shown = lango(tmp_path, *options, *command, environment=environment)
        for name in environment:
            text = f"The environment variable {name} sets nothing and is ignored.\n"
            assert shown.stderr.count(text) == 1, (command, shown.stderr)
            assert text not in shown.stdout
