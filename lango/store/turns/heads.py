"""Sessions with work, in a fair order.

Workers are shared between tenants, and within a tenant between the keys that submitted the turns:
the one with the fewest turns running and chosen comes first, and ties are broken at random. If the
longest wait broke them, the same one would win each time one of its turns ends. A tenant that
submits thousands of turns delays only its own. The turns of one key run in order of their waits,
the longest first.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import sqlalchemy as sa

from lango.store.db.clock import ago
from lango.store.db.statement import Prepared
from lango.store.schema.tables import IS_RUNNING, turns, workers

FLOWS: Final = 64
"""Flows of an app that one query reads. If more have ready turns, the next query reads on."""
TENANTS: Final = 64
"""Tenants of an app of which one query reads a flow. With more, the next query reads on."""
_Found = sa.Select[*tuple[Any, ...]]
_SHOWN: Final = (
    turns.c.session_pk,
    turns.c.app,
    turns.c.tenant,
    turns.c.id,
    turns.c.ready,
    turns.c.flow,
)
_FIRST: Final = sa.literal_column("1", sa.Integer)


def flow_of(tenant: str, key_id: str) -> str:
    """The name of a flow: the turns of one key of a tenant, which are served in order."""
    return f"{tenant}/{key_id}"


def heads(apps: int, limit: int, *, lateral: bool) -> Prepared:
    """A query for running turns without a living worker, then for ready turns, of `apps` apps.

    Returns up to `limit` rows, rounded up to a power of two. It reads FLOWS flows of each app at
    most, from the parameter `from_flow` on: `next_flow` is where the next query continues, None if
    these were all. In case these are flows of few tenants, it also reads a flow of each of TENANTS
    tenants, from `from_tenant` on, to continue at `next_tenant`. `lateral` is for PostgreSQL:
    SQLite has no lateral joins.
    """
    return _heads(apps, 1 << (limit - 1).bit_length(), lateral)


@cache
def _heads(apps: int, limit: int, lateral: bool) -> Prepared:
    """Build the query: lost turns from a scan of the running ones, which are never many.

    Of the ready turns, each flow contributes those that wait longest, `limit` at most: one index
    lookup for each flow, however many of its turns wait. The limit is a literal: for a parameter,
    PostgreSQL plans for a tenth of all rows.
    """
    limit_column = sa.literal_column(str(limit), sa.Integer)
    names: list[sa.BindParameter[str]] = [sa.bindparam(f"app_{index}") for index in range(apps)]
    flows = [_skip_scan(name, turns.c.flow, "from_flow", FLOWS) for name in names]
    tenants = [_skip_scan(name, turns.c.tenant, "from_tenant", TENANTS) for name in names]
    walk = _walked if lateral else _listed
    selections = [_chosen(name, *of) for name, *of in zip(names, flows, tenants, strict=True)]
    walks = [walk(name, of, limit_column) for name, of in zip(names, selections, strict=True)]
    ready = _ranked(sa.union_all(*walks).subquery())
    candidates = sa.union_all(sa.select(_lost(names, limit_column).subquery()), ready).subquery()
    columns = (candidates.c[name] for name in ("session_pk", "app", "tenant", "id", "lost", "rank"))
    order = candidates.c.lost.desc(), candidates.c.rank, sa.func.random()
    next_flow = _next([of.c.flow for of in flows], FLOWS).label("next_flow")
    next_tenant = _next([of.c.tenant for of in tenants], TENANTS).label("next_tenant")
    return Prepared(
        sa.select(*columns, next_flow, next_tenant).order_by(*order).limit(limit_column)
    )


def _next(names: list[sa.ColumnElement[str]], limit: int) -> sa.ScalarSelect[Any]:
    """The last name of skip scans that found as many as they may; None if they found all."""
    last = [sa.select(name.label("name")).where(name.table.c.step == limit) for name in names]
    last_names = sa.union_all(*last).subquery()
    return sa.select(sa.func.min(last_names.c.name)).scalar_subquery()


def _lost(names: list[sa.BindParameter[str]], limit_column: sa.ColumnClause[int]) -> _Found:
    living = sa.select(workers.c.id).where(workers.c.beat > ago("dead_after"))
    return (
        sa.select(
            turns.c.session_pk,
            turns.c.app,
            turns.c.tenant,
            turns.c.id,
            sa.true().label("lost"),
            sa.literal_column("0", sa.Integer).label("rank"),
        )
        .where(
            IS_RUNNING,
            sa.or_(*(turns.c.app == name for name in names)),
            turns.c.worker.not_in(living),
            sa.or_(
                turns.c.attempts - turns.c.handed_over <= sa.bindparam("most_losses"),
                turns.c.closing,
                turns.c.cancel_requested,
            ),
        )
        .limit(limit_column)
    )


def _skip_scan(
    app: sa.BindParameter[str], column: sa.Column[str], start: str, limit: int
) -> sa.CTE:
    """The values of a column in the ready turns of an app, each found after the one before."""
    is_ready = turns.c.ready.is_not(None), turns.c.app == app
    first = sa.select(sa.func.min(column).label(column.name), _FIRST.label("step"))
    values = first.where(*is_ready, column >= sa.bindparam(start)).cte(recursive=True)
    last = values.c[column.name]
    following = sa.select(sa.func.min(column)).where(*is_ready, column > last)
    return values.union_all(
        sa.select(following.correlate(values).scalar_subquery(), values.c.step + 1).where(
            last.is_not(None), values.c.step < limit
        )
    )


def _chosen(app: sa.BindParameter[str], flows: sa.CTE, tenants: sa.CTE) -> sa.CTE:
    """The flows to read: those found, and of each tenant found the flow that waits longest."""
    is_of_tenant = (
        turns.c.ready.is_not(None),
        turns.c.app == app,
        turns.c.tenant == tenants.c.tenant,
    )
    longest = sa.select(turns.c.flow).where(*is_of_tenant).order_by(turns.c.ready).limit(1)
    of_tenants = sa.select(longest.correlate(tenants).scalar_subquery().label("flow"))
    return sa.union(sa.select(flows.c.flow), of_tenants.select_from(tenants)).cte()


def _waits(
    source: sa.FromClause,
    app: sa.BindParameter[str],
    flows: sa.CTE,
    *columns: sa.ColumnElement[Any],
) -> _Found:
    """The ready turns of a flow, the longest wait first; `source` are the turns."""
    is_of_flow = source.c.ready.is_not(None), source.c.app == app, source.c.flow == flows.c.flow
    return sa.select(*columns).where(*is_of_flow).order_by(source.c.ready).correlate(flows)


def _walked(
    app: sa.BindParameter[str], flows: sa.CTE, limit_column: sa.ColumnClause[int]
) -> _Found:
    """The turns of each flow that wait longest."""
    waits = _waits(turns, app, flows, *_SHOWN).limit(limit_column).lateral()
    return sa.select(waits).select_from(flows.join(waits, sa.true()))


def _listed(
    app: sa.BindParameter[str], flows: sa.CTE, limit_column: sa.ColumnClause[int]
) -> _Found:
    """The same without a lateral join, by the row ids of SQLite.

    A join by columns would not do: SQLite may begin it at the turns, and read all that wait.
    """
    waiting = turns.alias("waiting")
    ids = _waits(waiting, app, flows, sa.literal_column("waiting._rowid_")).limit(limit_column)
    is_listed = sa.literal_column("turns._rowid_").in_(ids.select_from(waiting))
    return sa.select(*_SHOWN).select_from(flows.join(turns, is_listed))


def _ranked(ready: sa.Subquery) -> _Found:
    """The ready turns with their ranks: within their flow, then within their tenant."""
    of_flow = _numbered(ready, "flow", ready.c.ready, ready.c.session_pk)
    of_tenant = _numbered(of_flow, "tenant", of_flow.c.rank, sa.func.random())
    columns = of_tenant.c.session_pk, of_tenant.c.app, of_tenant.c.tenant, of_tenant.c.id
    return sa.select(*columns, sa.false().label("lost"), of_tenant.c.rank)


def _numbered(candidates: sa.Subquery, group: str, *order: sa.ColumnElement[Any]) -> sa.Subquery:
    """The turns with their ranks in their groups, counted after the group's running turns."""
    running = (
        sa.select(turns.c[group], sa.func.count().label("count"))
        .where(IS_RUNNING)
        .group_by(turns.c[group])
        .cte()
    )
    rank = sa.func.row_number().over(partition_by=candidates.c[group], order_by=order)
    columns = [column for column in candidates.c if column.name != "rank"]
    return (
        sa.select(*columns, (rank + sa.func.coalesce(running.c.count, 0)).label("rank"))
        .select_from(candidates.outerjoin(running, running.c[group] == candidates.c[group]))
        .subquery()
    )
