"""`lango usage`: tokens and cost of model calls, grouped by the `--by` options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from lango.cli.completing import AnyUser, AppName
from lango.cli.opened import OpenStore, with_store
from lango.cli.options import Config, Json, Schema, Tenant, Url
from lango.cli.output.moments import Since, Until
from lango.cli.output.tables import Column, money, print_json, print_table
from lango.core.insight import BY, UsageBy, UsageReport, UsageRow, UsageSum

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIGURES: Final = (
    Column("turns", is_number=True, is_spare=True),
    Column("calls", is_number=True, is_spare=True),
    Column("input", is_number=True),
    Column("cached", is_number=True, is_spare=True),
    Column("output", is_number=True),
    Column("cost", is_number=True),
)


def usage(
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="|".join(BY),
            help="Group by this; repeat for several (default: day).",
            autocompletion=lambda: list(BY),
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    app: AppName = None,
    user: AnyUser = None,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Sum the tokens and the cost of model calls (default: the last 30 days)."""
    groups = _checked(by or ())

    async def read(opened: OpenStore) -> UsageReport:
        from lango.insight.usage import recent_usage
        from lango.store.insight.usage import read_usage

        usage_filter = recent_usage(opened.tenant, since, until, user, app)
        return await read_usage(opened.store.database, usage_filter, groups)

    report = with_store((url, schema, config), tenant, read)
    if as_json:
        print_json(report)
    elif report.rows:
        _show(report)
    else:
        begin, end = (f"{time:%Y-%m-%d %H:%M}" for time in (report.since, report.until))
        typer.echo(f"No model was called from {begin} to {end} UTC.")


def _checked(by: Sequence[str]) -> list[UsageBy]:
    groups: dict[str, UsageBy] = {name: name for name in BY}
    for name in by:
        if name not in groups:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(BY)}.", param_hint="--by")
    return [groups[name] for name in by]


def _show(report: UsageReport) -> None:
    groups = [Column(name, is_text=name != "day") for name in report.by]
    total = ["total", *[""] * (len(report.by) - 1), *_figures(report.total)]
    rows = [_cells(row, report.by) for row in report.rows]
    print_table([*groups, *_FIGURES], rows, total=total)
    if report.more:
        typer.echo("There are more rows: ask for less, or use --since and --until.")
    if report.total.cut_off:
        typer.echo(
            f"{report.total.cut_off:,} calls were cut off with their worker: what they used is not "
            "known, and not counted."
        )
    if report.total.cost is None:
        typer.echo("None of these models has a known price.")


def _cells(row: UsageRow, by: Sequence[UsageBy]) -> list[str]:
    return [*(str(getattr(row, name)) or "-" for name in by), *_figures(row)]


def _figures(summed: UsageSum) -> list[str]:
    counts = (summed.turns, summed.calls, summed.input, summed.cached, summed.output)
    return [*(f"{count:,}" for count in counts), money(summed.cost) or "-"]
