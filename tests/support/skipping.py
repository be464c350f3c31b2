"""Tests that need what a developer's machine may lack: they are skipped there, and fail in CI."""

import os
from collections.abc import Generator
from contextlib import contextmanager

import pytest


@contextmanager
def skipped_without(error: type[Exception], what: str) -> Generator[None]:
    """Skip the test if the block raises this error, except in CI."""
    try:
        yield
    except error as reason:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no {what}: {reason}")
