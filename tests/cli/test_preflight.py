"""Ports in use and missing extras are reported before ADK is imported, with the next step."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.processes import PATIENCE

_RUN = """
import json, sys
for package in json.loads(sys.argv.pop(1)):
    sys.modules[package] = None  # which is how Python remembers that there is none
from lango.cli import main
try:
    main()
finally:
    print(json.dumps("google.adk" in sys.modules))
"""


@dataclass(frozen=True)
class Failed:
    """What a command said when it failed, and whether it had imported ADK by then."""

    code: int
    err: str
    imported_adk: bool


def fail(folder: Path, *arguments: str, missing: Sequence[str] = ()) -> Failed:
    """Run a command without the packages that are `missing`."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(missing), *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return Failed(done.returncode, done.stderr, json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(tmp_path, "scripted:demo")
    return tmp_path


@pytest.fixture
def taken() -> Generator[str]:
    """A port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield str(other.getsockname()[1])


def write(folder: Path, model: str, **more: str) -> None:
    agent = {"model": model, **({"mcp": ["wiki"]} if "mcp_servers" in more else {})}
    lines = [f"apps: {{desk: {{agent: {json.dumps(agent)}}}}}"]
    lines += [f"{name}: {value}" for name, value in more.items()]
    (folder / "lango.yaml").write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("command", "option"),
    [("serve", "--port"), ("dev", "--port"), ("worker", "--probe-port")],
)
def test_a_port_in_use_is_named_with_the_option(
    command: str, option: str, project: Path, taken: str
) -> None:
    failed = fail(project, command, option, taken)
    assert failed.err == (
        f"lango: Port {taken} of 127.0.0.1 is in use. Stop the program that uses it, or choose "
        f"another port with {option} (0 takes any free one).\n"
    )
    assert (failed.code, failed.imported_adk) == (1, False)


def test_a_port_of_the_settings_is_checked_too(tmp_path: Path, taken: str) -> None:
    write(tmp_path, "scripted:demo", server=f"{{port: {taken}}}")
    failed = fail(tmp_path, "serve")
    assert f"Port {taken} of 127.0.0.1 is in use." in failed.err
    assert not failed.imported_adk


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("serve", "--port", "0", "--host", "192.0.2.1"), "--host"),
        (("worker", "--probe-port", "0"), "server.host"),
    ],
)
def test_an_address_of_another_machine_is_named(
    arguments: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    write(tmp_path, "scripted:demo", server="{host: 192.0.2.1}")  # for documentation: no machine's
    failed = fail(tmp_path, *arguments)
    assert failed.err.startswith("lango: Cannot listen on 192.0.2.1 port 0: ")
    assert why in failed.err
    assert (failed.code, failed.imported_adk) == (1, False)


@pytest.mark.parametrize(
    "arguments",
    [("serve", "--port", "0"), ("dev", "--port", "0"), ("worker", "--probe-port", "0")],
    ids=lambda arguments: arguments[0],
)
def test_a_server_names_its_extra(arguments: tuple[str, ...], project: Path) -> None:
    failed = fail(project, *arguments, missing=["httptools"])
    assert failed.err.endswith('pip install "lango-adk[server]"\n')
    assert failed.err.count("\n") == 1
    assert (failed.code, failed.imported_adk) == (1, False)


COMMANDS = [
    ("serve", "--port", "0"),
    ("dev", "--port", "0"),
    ("worker",),
    ("run", "hello"),
    ("chat",),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_a_model_names_its_extra(arguments: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path, "ollama:qwen3")
    failed = fail(tmp_path, *arguments, missing=["openai"])
    assert failed.err == (
        "lango: The model ollama:qwen3 of the app desk needs an SDK: "
        'pip install "lango-adk[openai]"\n'
    )
    assert (failed.code, failed.imported_adk) == (1, False)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_postgresql_names_its_extra(arguments: tuple[str, ...], project: Path) -> None:
    url = ("--url", "postgresql://lango@127.0.0.1/lango")
    failed = fail(project, *arguments, *url, missing=["asyncpg"])
    assert failed.err == 'lango: PostgreSQL needs a driver: pip install "lango-adk[postgres]"\n'
    assert (failed.code, failed.imported_adk) == (1, False)


def test_an_object_store_names_its_extra(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGO_FILES__OBJECTS", "s3://bucket")
    failed = fail(project, "run", "hi", missing=["obstore"])
    assert failed.code == 1
    assert 'pip install "lango-adk[objects]"' in failed.err
    assert not failed.imported_adk


def test_an_mcp_server_names_its_extra(tmp_path: Path) -> None:
    write(tmp_path, "scripted:demo", mcp_servers="{wiki: {url: 'http://127.0.0.1:9/mcp'}}")
    failed = fail(tmp_path, "run", "hello", missing=["mcp"])
    assert failed.err == (
        "lango: The MCP server 'wiki' needs an SDK: pip install \"lango-adk[mcp]\"\n"
    )
    assert (failed.code, failed.imported_adk) == (1, False)


def test_only_the_apps_that_are_asked_for_are_checked(tmp_path: Path) -> None:
    (tmp_path / "lango.yaml").write_text(
        "apps:\n"
        "  quiet: {agent: {model: 'scripted:demo'}}\n"
        "  loud: {agent: {model: 'scripted:demo', fallbacks: ['anthropic:claude-sonnet-4-5']}}\n"
    )
    assert "anthropic:claude-sonnet-4-5" in fail(tmp_path, "worker", missing=["anthropic"]).err
    answered = fail(tmp_path, "run", "quiet", "hello", missing=["anthropic"])
    assert (answered.code, answered.imported_adk) == (0, True)
