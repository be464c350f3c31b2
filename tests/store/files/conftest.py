"""Object stores of each kind, on this machine."""

import uuid
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.object_servers import ObjectServer, azure_server, s3_server


@pytest.fixture(scope="session")
def s3() -> Generator[ObjectServer]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Generator[ObjectServer]:
    with azure_server() as server:
        yield server


@pytest.fixture
def folder_url(tmp_path: Path) -> str:
    """The URL of a folder, which does not exist yet."""
    return f"file://{tmp_path}/objects/of-lango"


@pytest.fixture(params=["folder", "s3", "azure"])
def objects_url(
    request: pytest.FixtureRequest, folder_url: str, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A new object store of each kind in turn."""
    if request.param == "folder":
        return folder_url
    server: ObjectServer = request.getfixturevalue(request.param)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server.new_bucket(f"bucket-{uuid.uuid4().hex}")
