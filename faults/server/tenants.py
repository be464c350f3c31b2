"""G18: every operation with every credential, fuzzed requests, and canary secrets.

The server's tests check one operation at a time; this row checks all of them on both databases, as
often as requested.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from faults.harness import Guarantee, Outcome, Run, new_tenant
from faults.turns.workspace import temporary_workspace, turn_process
from tests.server.auth.canaries import (
    REQUESTS,
    app_of,
    credentials,
    listening,
    say,
    send_everywhere,
)
from tests.server.auth.issuers import issuing, new_key
from tests.server.auth.matrix import WAYS, matrix
from tests.server.http.fuzzing import fuzzed
from tests.server.routes.operations import OPERATIONS, Operation
from tests.server.served_apps import served_app

_AT_ONCE: Final = 50  # cases of an operation before the next operation


async def _matrix(url: str, operations: Sequence[Operation], outcome: Outcome) -> int:
    """Call every secured operation with every credential; return the number of responses."""
    cells = 0
    for operation in operations:
        if not operation.is_secured:
            continue
        # Tenants of its own: what one operation has created, another would find.
        with temporary_workspace(url) as workspace:
            async with served_app(workspace, new_tenant()) as served:
                tried = await matrix(served)
                for wrong in await tried.wrongs(operation):
                    outcome.fail(wrong)
        cells += tried.cells
    return cells


def _fuzz(run: Run, operations: Sequence[Operation], outcome: Outcome) -> int:
    """Send at least `run.count` fuzzed requests to all operations; return their number."""
    drawn = random.Random(run.seed)
    failed: set[str] = set()
    with ExitStack() as ending:
        workspaces = [
            ending.enter_context(temporary_workspace(url)) for url in run.databases.each().values()
        ]
        servers = [
            ending.enter_context(fuzzed(workspace, new_tenant())) for workspace in workspaces
        ]
        while sum(server.sent for server in servers) < run.count and len(failed) < len(operations):
            for operation in operations:
                server, start = drawn.choice(servers), drawn.randrange(2**32)
                try:
                    server.fuzz(operation, examples=_AT_ONCE, start=start)
                except Exception as wrong:  # noqa: BLE001 - whatever it is, the report says it
                    outcome.fail(f"{operation} (seed {start}): {wrong}")
                    failed.add(operation.id)
        return sum(server.sent for server in servers)


async def _canaries(url: str, outcome: Outcome) -> int:
    """Put secrets in wrong fields and in messages; return the number of requests with them."""
    tenant = new_tenant()
    with temporary_workspace(url) as workspace, listening() as canaries:
        async with (
            turn_process(workspace, dead_after=60.0) as process,
            issuing(new_key("ES256")) as issuer,
        ):
            texts = await credentials(process, issuer, canaries, tenant)
            app = app_of(process, issuer)
            for number, request in enumerate(REQUESTS):
                statuses = await send_everywhere(app, number, texts, canaries)
                outcome.expect(max(statuses) < 500, f"{request[:2]}: {max(statuses)}")
        async with served_app(workspace, tenant) as served:
            await say(served, canaries)
        for secret, text in canaries.leaks():
            outcome.fail(f"{secret} leaked: {text[:300]}")
        return len(canaries.bodies)


def trial(run: Run, operations: Sequence[Operation] = OPERATIONS) -> Outcome:
    """Run all checks for some operations."""
    outcome = Outcome()
    cells = sent = 0
    for url in run.databases.each().values():
        cells += asyncio.run(_matrix(url, operations, outcome))
        sent += asyncio.run(_canaries(url, outcome))
    outcome.note(f"{len(operations)} operations called in {len(WAYS)} ways, {cells} answers")
    outcome.note(f"{_fuzz(run, operations, outcome)} cases of schemathesis")
    outcome.note(f"{sent} requests with secrets")
    return outcome


G18: Final = Guarantee(
    "G18",
    "every operation by everybody, made-up requests, planted secrets: no leak, no 5xx",
    full=10_000,
    ci=500,
    run=trial,
)
