"""A page of sessions costs what its length says, however many come before it."""

import json
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from faults.turns.workspace import Workspace
from lango.store.db.leases import Leases
from tests.server.served_apps import ServedApp, served_app
from tests.store.rows import execute, raw
from tests.support.databases import temporary_postgres

COUNT = 10_000
PAGE = 50
SESSIONS = """
insert into sessions (tenant, app_name, user_id, id, public_id, state, created, updated,
  last_activity)
select '{tenant}', '{app}', u, g, '{tenant}-' || u || g, '{{}}', now(), now(),
  now() - g * interval '1 minute'
from generate_series(1, {count}) g, unnest(array['ann', 'bob']) u"""


@pytest.fixture
async def full(postgres_url: str, tenant: str, tmp_path: Path) -> AsyncIterator[ServedApp]:
    """A server whose users have many sessions.

    The plan follows from the statistics: no other test has rows in this database, and autovacuum
    neither counts the rows again nor marks pages as visible to all.
    """
    async with temporary_postgres(postgres_url) as url:
        workspace = Workspace(url, f"app_{uuid.uuid4().hex}", tmp_path)
        rows = SESSIONS.format(tenant=tenant, app=workspace.app, count=COUNT)
        by_hand = "alter table sessions set (autovacuum_enabled = off)"
        await execute(url, by_hand, rows, "analyze sessions")
        async with served_app(workspace, tenant) as opened:
            yield opened


async def page(client: httpx.AsyncClient, cursor: str | None) -> dict[str, Any]:
    where = {"limit": PAGE} | ({"cursor": cursor} if cursor else {})
    answer = await client.get("/v1/sessions", params=where)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_last_page_reads_as_many_rows_as_the_first(
    full: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    cursors: list[str | None] = [None]
    async with full.client() as client:
        while True:
            listed = await page(client, cursors[-1])
            seen += [session["id"] for session in listed["sessions"]]
            if listed["next"] is None:
                break
            cursors.append(listed["next"])
        statements = Statements(monkeypatch)
        reads = [await statements.rows_read(full, client, each) for each in (None, cursors[-1])]
    assert seen == [f"{full.tenant}-ann{number}" for number in range(1, COUNT + 1)]
    assert reads[0] == PAGE + 1  # one more, to know whether there is another page
    assert reads[1] == PAGE


class Statements:
    """Those that are sent on leased connections."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._seen: list[tuple[str, Any]] = []
        usual = Leases.fetch

        async def fetch(leases: Leases, sql: str, *arguments: Any) -> list[Any]:
            self._seen.append((sql, arguments))
            return await usual(leases, sql, *arguments)

        patch.setattr(Leases, "fetch", fetch)

    async def rows_read(
        self, full: ServedApp, client: httpx.AsyncClient, cursor: str | None
    ) -> int:
        """How many rows of sessions PostgreSQL looks at for a page, by its own account.

        It plans a statement that is sent often without its values: so is this plan.
        """
        self._seen.clear()
        await page(client, cursor)
        ((sql, arguments),) = [each for each in self._seen if "FROM sessions" in each[0]]
        async with raw(full.process.workspace.url) as connection:
            await connection.execute("set plan_cache_mode = force_generic_plan")
            await connection.execute(f"prepare page as {sql}")
            values = ", ".join(f"'{value}'" for value in arguments)
            result = await connection.fetchval(
                f"explain (analyze, format json) execute page({values})"
            )
        return sum(map(_looked_at, _nodes(json.loads(result)[0]["Plan"])))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


def _looked_at(node: dict[str, Any]) -> int:
    """Rows of sessions that a step of a plan has taken or passed over."""
    if node.get("Relation Name") != "sessions":
        return 0
    passed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return (node["Actual Rows"] + passed) * node["Actual Loops"]
