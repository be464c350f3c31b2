"""The role of servers and workers that deploy/roles.sh makes, on a server with real privileges."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import yaml
from sqlalchemy import URL, make_url
from sqlalchemy.exc import DBAPIError

import lango
from lango.store.schema import migrate
from lango.testing import ScriptedProvider
from tests.docs.pages import ROOT
from tests.store.rows import beside, execute
from tests.support.databases import temporary_postgres

SCRIPT = (ROOT / "deploy/roles.sh").read_text()
PASSWORD = "it's secret"
PATIENCE = 3600
[[QUERY]] = [
    [trigger["metadata"]["query"] for trigger in each["spec"]["triggers"]]
    for each in yaml.safe_load_all((ROOT / "deploy/keda.yaml").read_text())
    if each["kind"] == "ScaledObject"
]


def text_of(url: URL) -> str:
    return url.render_as_string(hide_password=False)


@asynccontextmanager
async def role_of(owner: URL) -> AsyncGenerator[URL]:
    """A database's plain role, under a name of this test's own: roles are the whole server's."""
    name = f"lango_app_{secrets.token_hex(4)}"
    given = {
        "PGHOST": owner.host or "",
        "PGPORT": str(owner.port or 5432),
        "POSTGRES_USER": owner.username or "",
        "POSTGRES_DB": owner.database or "",
        "LANGO_PASSWORD": PASSWORD,
    }
    script = SCRIPT.replace("lango_app", name)
    try:
        running = await asyncio.create_subprocess_exec("sh", "-c", script, env=os.environ | given)
        assert await running.wait() == 0
        yield owner.set(username=name, password=PASSWORD)
    finally:
        await execute(text_of(owner), f"drop owned by {name}", f"drop role {name}")


async def oldest_wait(url: str) -> float:
    """What the autoscaler reads."""
    async with beside(url) as connection:
        [[seconds]] = (await connection.exec_driver_sql(QUERY)).all()
        return float(seconds)


@pytest.mark.parametrize("tables", ["come later", "are there"])
async def test_the_plain_role_runs_turns_and_changes_no_table(tables: str) -> None:
    async with temporary_postgres() as url:
        owner = make_url(url)
        if tables == "come later":
            await execute(url, "drop schema public cascade", "create schema public")
        async with role_of(owner) as role:
            await migrate.upgrade(url)
            plain = text_of(role)
            async with lango.Agent(model=ScriptedProvider(["Hello."]), store=plain) as agent:
                assert await agent.run_and_collect("hi") == "Hello."
            assert await oldest_wait(plain) == 0
            await execute(plain, "update turns set ready = now() - interval '90 seconds'")
            assert 90 <= await oldest_wait(plain) < 90 + PATIENCE
            for change in ("alter table sessions add more text", "create table more (id int)"):
                with pytest.raises(DBAPIError, match=r"must be owner|permission denied"):
                    await execute(plain, change)
