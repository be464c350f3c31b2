"""`lango adk services`."""

from __future__ import annotations

from pathlib import Path

import pytest

from lango.adk.apps.services import services_yaml
from tests.cli.running import run


def test_services_writes_the_file_and_says_how_to_go_on(tmp_path: Path) -> None:
    done = run("adk", "services", str(tmp_path))
    assert done.code == 0
    assert (tmp_path / "services.yaml").read_text() == services_yaml()
    assert "adk web --session_service_uri=lango+sqlite:///" in done.out
    assert run("adk", "services", str(tmp_path)).code == 0


def test_services_names_the_store_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE", "postgresql://ann:hush@db/shop")
    (tmp_path / "lango.yaml").write_text("store: {url: '${STORE}'}\n")
    done = run("adk", "services", "--config", str(tmp_path / "lango.yaml"), str(tmp_path))
    assert "--session_service_uri=lango+postgresql://ann:**********@db/shop " in done.out


def test_services_can_be_shown_only(tmp_path: Path) -> None:
    assert run("adk", "services", "--print", str(tmp_path)).out == services_yaml()
    assert list(tmp_path.iterdir()) == []


def test_other_services_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "services.yaml").write_text("services: []\n")
    done = run("adk", "services", str(tmp_path))
    assert done.code == 1
    assert done.err.startswith(f"lango: {tmp_path / 'services.yaml'} exists")


def test_a_folder_must_be_there(tmp_path: Path) -> None:
    done = run("adk", "services", str(tmp_path / "agents"))
    assert (done.code, done.err) == (1, f"lango: There is no folder {tmp_path / 'agents'}.\n")
