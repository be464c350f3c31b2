"""Tests that need PgBouncer: skipped where it is missing, failed in CI."""

import os

import pytest

from lango.testing.pgbouncer import program


def require_pgbouncer() -> None:
    if program() is None:
        reason = "PgBouncer is not installed: apt-get install pgbouncer"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
