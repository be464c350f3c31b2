"""A run of some measures: each printed when it is done, and the verdict of all at the end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from bench.report import summary, verdicts
from bench.targets import exit_code

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from bench.targets import Finding, Result


async def run(area: str, measures: Iterable[Callable[[], Awaitable[Result]]], most: float) -> int:
    """Run them, for `most` seconds at the most; the exit code."""
    began = time.monotonic()
    findings: list[Finding] = []
    async with asyncio.timeout(most):
        for measure in measures:
            result = await measure()
            for table in result.tables:
                print(table, flush=True)
            findings += result.findings
    print(verdicts(findings))
    print(summary(area, findings, time.monotonic() - began))
    return exit_code(findings)
