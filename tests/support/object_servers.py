"""Servers of object stores on loopback: moto for S3, Azurite for Azure. They are installed here."""

import base64
import email.utils
import hashlib
import hmac
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from faults.database.own_cluster import free_port
from tests.support.environments import ROOT, environment, locked

AZURITE = ROOT / "tests" / "store" / "files" / "azurite"
STARTING = 120.0  # seconds
ACCOUNT = "devstoreaccount1"
# Azurite's account for development, which its documentation publishes.
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True, slots=True)
class ObjectServer:
    """A server, and the environment variables by which obstore finds it."""

    address: str
    environment: Mapping[str, str]

    def new_bucket(self, name: str) -> str:
        """The URL of a new bucket or container."""
        if "AZURE_STORAGE_ACCOUNT_NAME" not in self.environment:
            _put(f"{self.address}/{name}", {})
            return f"s3://{name}/some/prefix"
        headers = {
            "x-ms-date": email.utils.formatdate(usegmt=True),
            "x-ms-version": "2021-08-06",
        }
        signed = "".join(f"{name}:{value}\n" for name, value in headers.items())
        what = f"PUT{12 * chr(10)}{signed}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        digest = hmac.new(base64.b64decode(ACCOUNT_KEY), what.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        _put(f"{self.address}/{name}?restype=container", headers)
        return f"az://{name}/some/prefix"


def _put(url: str, headers: Mapping[str, str]) -> None:
    httpx.put(url, headers=dict(headers), timeout=STARTING).raise_for_status()


@contextmanager
def s3_server() -> Generator[ObjectServer]:
    """A server of S3's API, which keeps objects in memory."""
    moto = _moto()
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    environment = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    with _running([moto, "-H", "127.0.0.1", "-p", str(port)], port):
        yield ObjectServer(address, environment)


@contextmanager
def azure_server() -> Generator[ObjectServer]:
    """A server of the API of Azure's blobs."""
    azurite = _azurite()
    port = free_port()
    address = f"http://127.0.0.1:{port}/{ACCOUNT}"
    environment = {
        "AZURE_STORAGE_ENDPOINT": address,
        "AZURE_ALLOW_HTTP": "true",
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
    }
    with tempfile.TemporaryDirectory() as folder:
        options = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location", folder]
        listening = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
        with _running([azurite, *listening, *options], port):
            yield ObjectServer(address, environment)


@contextmanager
def _running(command: Sequence[str | Path], port: int) -> Generator[None]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        try:
            _wait_for(port, process)
            yield
        finally:
            process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + STARTING
    while not _is_listening(port):
        assert process.poll() is None, f"the server ended with {process.returncode}"
        assert time.monotonic() < until, "the server does not listen"
        time.sleep(0.05)


def _is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def _moto() -> Path:
    """The program of an environment of its own: it needs sixty packages that nothing else does."""
    return environment("s3") / "bin" / "moto_server"


def _azurite() -> Path:
    program = AZURITE / "node_modules" / ".bin" / "azurite-blob"
    with locked("azurite"):
        if not program.exists():
            npm = shutil.which("npm")
            assert npm, "npm is needed to install Azurite"
            options = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")
            _install([npm, "install", "--prefix", AZURITE, *options])
    return program


def _install(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
