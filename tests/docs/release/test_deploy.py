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
from lango.config.server import ServerSettings
from lango.config.settings import WorkerSettings
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
KEDA = list(yaml.safe_load_all((DEPLOY / "keda.yaml").read_text()))
NEEDED_BY_POSTGRES = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}
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
    [text] = re.findall(rf"^{name} ((?:.*\\\n)*.*)$", stage, re.MULTILINE)
    return text


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


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_of_compose_may_do_little(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert all(":size=" in each for each in service["tmpfs"])
    assert service["cap_drop"] == ["ALL"]
    assert set(service.get("cap_add", ())) == (NEEDED_BY_POSTGRES if name == "postgres" else set())
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["pids_limit"]


@pytest.mark.parametrize(
    ("file", "images"),
    [
        ("compose.yaml", [COMPOSE["services"]["postgres"]["image"]]),
        ("Dockerfile", re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)),
    ],
    ids=["compose.yaml", "Dockerfile"],
)
def test_a_foreign_image_names_its_release_and_how_to_pin_it(file: str, images: list[str]) -> None:
    assert images
    for image in images:
        tag = re.fullmatch(r"(\w+:\d[\w.]*(?:-slim)?-bookworm)(@sha256:[0-9a-f]{64})?", image)
        assert tag, image
        assert f"imagetools inspect {tag[1]} --format" in (DEPLOY / file).read_text()


def test_only_migrations_run_as_the_owner_of_the_tables() -> None:
    for name, service in OURS.items():
        role = make_url(service["environment"]["LANGO_STORE__URL"].split("${")[0] + "x@h/d")
        assert role.username == ("lango" if name == "tables" else "lango_app")
    for each in CONTAINERS:
        [url] = [one["valueFrom"] for one in each["env"] if one["name"] == "LANGO_STORE__URL"]
        wanted = "lango-owner" if each["name"] == "tables" else "lango"
        assert url["secretKeyRef"]["name"] == wanted


def test_the_autoscaler_asks_for_what_there_is() -> None:
    scaled, login = KEDA
    [trigger] = scaled["spec"]["triggers"]
    assert trigger["authenticationRef"]["name"] == login["metadata"]["name"]
    assert login["spec"]["secretTargetRef"] == [
        {"parameter": "connection", "name": "lango", "key": "url"}
    ]
    deployments = {
        each["metadata"]["name"]: each for each in KUBERNETES if each["kind"] == "Deployment"
    }
    worker = deployments[scaled["spec"]["scaleTargetRef"]["name"]]
    for each in KEDA:
        assert each["metadata"]["namespace"] == worker["metadata"]["namespace"]
    [container] = worker["spec"]["template"]["spec"]["containers"]
    [url] = [one["valueFrom"] for one in container["env"] if one["name"] == "LANGO_STORE__URL"]
    assert url["secretKeyRef"] == {"name": "lango", "key": "url"}


def test_the_autoscaler_is_written_as_keda_reads_it() -> None:
    """The rules of KEDA's schemas that apply: there is no schema of it to check against here."""
    scaled, login = KEDA
    assert [each["kind"] for each in KEDA] == ["ScaledObject", "TriggerAuthentication"]
    for each in KEDA:
        assert each.keys() == {"apiVersion", "kind", "metadata", "spec"}
        assert each["apiVersion"] == "keda.sh/v1alpha1"
        assert each["metadata"].keys() == {"name", "namespace"}
    spec = scaled["spec"]
    assert spec.keys() == {"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "triggers"}
    assert spec["scaleTargetRef"].keys() == {"name"}
    assert 1 <= spec["minReplicaCount"] < spec["maxReplicaCount"]
    [trigger] = spec["triggers"]
    assert trigger.keys() == {"type", "metadata", "authenticationRef"}
    assert trigger["type"] == "postgresql"
    assert trigger["metadata"].keys() == {"query", "targetQueryValue"}
    assert all(isinstance(value, str) for value in trigger["metadata"].values())
    assert float(trigger["metadata"]["targetQueryValue"]) > 0
    assert login["spec"].keys() == {"secretTargetRef"}


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
