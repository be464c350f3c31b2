from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.otlp import Receiver, receiver
from tests.telemetry.tracing.project import Project


@pytest.fixture
def traces() -> Generator[Receiver]:
    with receiver() as received:
        yield received


@pytest.fixture
def project(tmp_path: Path, sqlite_url: str, traces: Receiver) -> Project:
    """On a file that several processes use."""
    return Project(tmp_path, sqlite_url, traces.url, "shop")


@pytest.fixture
def any_project(tmp_path: Path, store_url: str, tenant: str, traces: Receiver) -> Project:
    """On either database; its app has a name of its own."""
    return Project(tmp_path, store_url, traces.url, f"shop_{tenant[-8:]}")
