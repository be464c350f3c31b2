"""The files of deploy/: fit for the programs that read them, and true of lango."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lango.config.load import load
from lango.config.settings import ServerSettings, WorkerSettings
from lango.server.hosts import PROBES
from lango.server.serving import HTTP_DRAIN
from tests.docs.command_lines import parse
from tests.docs.pages import ROOT

DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
BUILD, RUN = (part.strip() for part in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:])
LONGEST_STOP = WorkerSettings().drain + HTTP_DRAIN

OURS = {name: each for name, each in COMPOSE["services"].items() if name != "postgres"}
DEPLOYMENTS = [
    each["spec"]["template"]["spec"] for each in KUBERNETES if each["kind"] == "Deployment"
]
CONTAINERS = [
    each for spec in DEPLOYMENTS for each in (*spec.get("initContainers", ()), *spec["containers"])
]


def instruction(stage: str, name: str) -> str:
    """What the one instruction of that name says."""
    [said] = re.findall(rf"^{name} ((?:.*\\\n)*.*)$", stage, re.MULTILINE)
    return said


@pytest.mark.parametrize(
    "command",
    [
        ("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"),
        ("kubernetes-validate", "--strict", "kubernetes.yaml"),
    ],
    ids=lambda command: command[0],
)
def test_they_fit_their_schemas(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [BIN / command[0], *command[1:]], cwd=DEPLOY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_is_one_of_lango_s() -> None:
    commands = [
        json.loads(instruction(RUN, "CMD")),
        *(each["command"] for each in OURS.values()),
        *(each["args"] for each in CONTAINERS),
    ]
    assert instruction(RUN, "ENTRYPOINT") == '["lango"]'
    for command in commands:
        parse(command)


def test_the_image_is_small_and_nobody_s() -> None:
    assert int(instruction(RUN, "USER")) > 0
    assert int(instruction(RUN, "EXPOSE")) == ServerSettings().port
    assert f"127.0.0.1:{ServerSettings().port}/healthz" in instruction(RUN, "HEALTHCHECK")
    assert "--require-hashes" in BUILD
    assert "pip install" not in RUN
    copied = [line.split()[1:-1] for line in BUILD.splitlines() if line.startswith("COPY ")]
    assert all((ROOT / source).exists() for sources in copied for source in sources)


def test_there_is_time_to_stop() -> None:
    graces = [int(each["stop_grace_period"].removesuffix("s")) for each in OURS.values()]
    graces += [each["terminationGracePeriodSeconds"] for each in DEPLOYMENTS]
    assert min(graces) > LONGEST_STOP


def test_kubernetes_asks_what_answers_everybody() -> None:
    [server] = [each for each in CONTAINERS if each["name"] == "server"]
    probes = [value["httpGet"] for name, value in server.items() if name.endswith("Probe")]
    assert {probe["path"] for probe in probes} == set(PROBES)
    assert server["ports"][0]["containerPort"] == ServerSettings().port
    for each in CONTAINERS:
        assert each["securityContext"]["readOnlyRootFilesystem"]


def test_their_settings_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://lango@postgres/lango"
    monkeypatch.setenv("LANGO_STORE__URL", url)
    [given] = [each["data"]["lango.yaml"] for each in KUBERNETES if each["kind"] == "ConfigMap"]
    (tmp_path / "lango.yaml").write_text(given)
    assert load(tmp_path / "lango.yaml").settings.server.allowed_hosts == ["agents.example.com"]
    for name, value in OURS["server"]["environment"].items():
        monkeypatch.setenv(name, value)
    settings: Any = load(DEPLOY / "app/lango.yaml").settings
    assert settings.server.allowed_hosts == ["localhost"]
    assert settings.store.url.get_secret_value().startswith("postgresql://lango:")
