"""The package as it would be released: what is in it, and that each extra installs and works."""

from __future__ import annotations

import email
import subprocess
import tarfile
import zipfile
from email.message import Message
from importlib.metadata import version
from pathlib import Path

import pytest

from lango.cli.root import DISTRIBUTION
from tests.docs.environments import free_address, newcomer
from tests.docs.pages import ROOT

# What each extra brings.
EXTRAS = {
    "": "lango.cli",
    "anthropic": "anthropic",
    "mcp": "mcp",
    "metrics": "prometheus_client",
    "nats": "nats",
    "objects": "obstore.store",
    "openai": "openai",
    "postgres": "asyncpg",
    "prices": "genai_prices",
    "redis": "redis",
    "server": "fastapi, joserfc, uvicorn",
    "telemetry": "opentelemetry.exporter.otlp.proto.http.trace_exporter, opentelemetry.sdk.trace",
    "temporal": "temporalio",
    "all": "anthropic, asyncpg, fastapi, genai_prices, joserfc, mcp, openai, uvicorn",
}
FOR_DEVELOPERS = {"dev", "docs"}


@pytest.fixture(scope="module")
def wheel(dist: Path) -> zipfile.ZipFile:
    [path] = dist.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(wheel.read(name))


def test_the_wheel_has_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    folders = {name.partition("/")[0] for name in names}
    assert folders == {"lango", f"lango_adk-{version(DISTRIBUTION)}.dist-info"}
    assert "lango/py.typed" in names
    shipped = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "lango").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == {name for name in names if name.startswith("lango/")}


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile, metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())
    extras = set(metadata.get_all("Provides-Extra", []))
    assert extras == (set(EXTRAS) - {""}) | FOR_DEVELOPERS
    assert str(metadata.get_payload()).startswith("# lango")


def test_the_sdist_can_be_built_from(dist: Path) -> None:
    [path] = dist.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "lango/py.typed"} <= names
    folders = {name.partition("/")[0] for name in names if "/" in name}
    assert folders == {"lango", "docs"}


@pytest.mark.parametrize("extra", EXTRAS)
def test_it_installs_into_an_empty_environment(extra: str, dist: Path, tmp_path: Path) -> None:
    environment = newcomer(dist, free_address())
    wanted = f"lango-adk[{extra}]" if extra else "lango-adk"

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("uv", "venv", "--quiet", "venv")
    run("uv", "pip", "install", "--quiet", "--python", "venv", wanted)
    run("uv", "pip", "check", "--python", "venv")
    run("venv/bin/python", "-W", "error", "-c", f"import lango, {EXTRAS[extra]}")
    assert run("venv/bin/lango", "--version").startswith("lango ")
