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
from sqlalchemy import make_url

from lango.config.load import load
from lango.config.settings import ServerSettings, WorkerSettings
from lango.server.http.hosts import PROBES
from lango.server.process import HTTP_DRAIN
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


def test_the_image_is_small_and_has_no_root_user() -> None:
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


@pytest.mark.parametrize("name", ["server", "worker"])
def test_kubernetes_asks_what_answers_everybody(name: str) -> None:
    [container] = [each for each in CONTAINERS if each["name"] == name]
    probes = [value["httpGet"] for key, value in container.items() if key.endswith("Probe")]
    assert {probe["path"] for probe in probes} == set(PROBES)
    [port] = container["ports"]
    assert {probe["port"] for probe in probes} == {port["name"]}
    flags = [ServerSettings().port, *container["args"]]
    assert str(port["containerPort"]) in map(str, flags)


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda each: each["name"])
def test_a_container_may_do_little(container: dict[str, Any]) -> None:
    locked = container["securityContext"]
    assert locked["readOnlyRootFilesystem"]
    assert not locked["allowPrivilegeEscalation"]
    assert locked["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"]["memory"]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert re.fullmatch(r"[\w.]+/lango@sha256:[0-9a-f]{64}", container["image"])


@pytest.mark.parametrize("pod", DEPLOYMENTS, ids=lambda pod: pod["containers"][0]["name"])
def test_a_pod_may_do_little(pod: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False  # a Service called lango sets LANGO_PORT
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["topologySpreadConstraints"]
    sizes = [each["emptyDir"]["sizeLimit"] for each in pod["volumes"] if "emptyDir" in each]
    assert sizes


def test_every_deployment_outlives_an_eviction_and_has_a_network_policy() -> None:
    apps = {
        each["spec"]["selector"]["matchLabels"]["app"]
        for each in KUBERNETES
        if each["kind"] == "Deployment"
    }
    budgets = [each["spec"] for each in KUBERNETES if each["kind"] == "PodDisruptionBudget"]
    policies = [each["spec"] for each in KUBERNETES if each["kind"] == "NetworkPolicy"]
    assert {each["selector"]["matchLabels"]["app"] for each in budgets} == apps
    assert {each["podSelector"]["matchLabels"]["app"] for each in policies} == apps


def test_a_server_waits_until_no_requests_are_sent_to_it() -> None:
    [server] = [each for each in CONTAINERS if each["name"] == "server"]
    [program, seconds] = server["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    [pod] = [each for each in DEPLOYMENTS if server in each["containers"]]
    assert pod["terminationGracePeriodSeconds"] > LONGEST_STOP + int(seconds)


@pytest.mark.parametrize("service", OURS.values(), ids=list(OURS))
def test_a_service_of_compose_may_do_little(service: dict[str, Any]) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["pids_limit"]


def test_only_migrations_run_as_the_owner_of_the_tables() -> None:
    for name, service in OURS.items():
        role = make_url(service["environment"]["LANGO_STORE__URL"].split("${")[0] + "x@h/d")
        assert role.username == ("lango" if name == "tables" else "lango_app")
    for each in CONTAINERS:
        [url] = [one["valueFrom"] for one in each["env"] if one["name"] == "LANGO_STORE__URL"]
        wanted = "lango-owner" if each["name"] == "tables" else "lango"
        assert url["secretKeyRef"]["name"] == wanted


def test_the_autoscaler_asks_for_what_there_is() -> None:
    scaled, login = yaml.safe_load_all((DEPLOY / "keda.yaml").read_text())
    [trigger] = scaled["spec"]["triggers"]
    assert trigger["authenticationRef"]["name"] == login["metadata"]["name"]
    assert login["spec"]["secretTargetRef"][0]["name"] == "lango"
    names = {each["metadata"]["name"] for each in KUBERNETES if each["kind"] == "Deployment"}
    assert scaled["spec"]["scaleTargetRef"]["name"] in names


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
    assert settings.store.url.get_secret_value().startswith("postgresql://lango_app:")
