"""The configuration of the page on nginx: a real nginx takes it, and holds no event back."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.processes import PATIENCE, Running
from tests.cli.slow_shop import Shop
from tests.conftest import CI
from tests.docs.environments import ADDRESS, free_address
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "how-to/nginx.md"
NAME = "agents.example.com"
MAIN = """\
daemon off;
pid nginx.pid;
error_log stderr;
worker_processes 1;
events {{}}
http {{
    access_log off;
    {paths}
    include {folder}/lango.conf;
}}
"""
KINDS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")

pytestmark = pytest.mark.skipif(not CI and NGINX is None, reason="nginx is not installed")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for the page's name, signed by itself; its key lies beside it."""
    path = tmp_path / "agents.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"),
            *("-keyout", path.with_suffix(".key"), "-out", path),
        ],
        check=True,
        capture_output=True,
    )
    return path


@contextmanager
def proxied(folder: Path, server: str, proxy: str) -> Generator[None]:
    """nginx with the page's configuration, in front of a server."""
    [shown] = blocks(PAGE, "nginx")
    replacements = {
        ADDRESS: server,
        "listen 443 ssl": f"listen {proxy} ssl",
        "/etc/ssl/": f"{folder}/",
    }
    text = shown.text
    for words, instead in replacements.items():
        assert words in text
        text = text.replace(words, instead)
    (folder / "lango.conf").write_text(text)
    paths = "\n    ".join(f"{kind}_temp_path {folder}/{kind};" for kind in KINDS)
    (folder / "nginx.conf").write_text(MAIN.format(paths=paths, folder=folder))
    command = [str(NGINX), "-p", str(folder), "-c", str(folder / "nginx.conf")]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    with subprocess.Popen(command) as running:
        try:
            yield
        finally:
            running.terminate()


def wait_until_ready(client: httpx.Client) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < until
        time.sleep(0.05)  # neither tells when it begins to listen


def ask_for_the_name(request: httpx.Request) -> None:
    request.extensions = {**request.extensions, "sni_hostname": NAME}


def test_events_come_through_as_they_happen(
    certificate: Path, tmp_path: Path, sqlite_url: str
) -> None:
    shop = Shop(tmp_path, sqlite_url, "t")
    shop.write(server=f"{{allowed_hosts: [{NAME}]}}")
    with Running(tmp_path, "keys", "create", "--user", "ann", "--json") as making:
        assert making.end() == 0
    server, proxy = free_address(), free_address()
    serve = ("serve", "--port", server.rpartition(":")[2])
    client = httpx.Client(
        base_url=f"https://{proxy}",
        headers={"Host": NAME, "Authorization": f"Bearer {json.loads(making.out)['key']}"},
        event_hooks={"request": [ask_for_the_name]},
        verify=ssl.create_default_context(cafile=certificate),
        timeout=PATIENCE,
    )
    with Running(tmp_path, *serve), proxied(tmp_path, server, proxy), client:
        wait_until_ready(client)
        session = client.post("/v1/sessions", json={"app": shop.app}).json()["id"]
        path, body = f"/v1/sessions/{session}/turns", {"message": "call hold {}"}
        accept = {"Accept": "text/event-stream"}
        received: list[str] = []
        with client.stream("POST", path, json=body, headers=accept) as response:
            for line in response.iter_lines():
                received.append(line)
                if line == "event: tool.started":  # held back, the tool would wait for ever
                    (tmp_path / "go").touch()
        assert "event: completed" in received
        assert client.get("/v1/agents", headers={"Host": "localhost"}).status_code == 200
