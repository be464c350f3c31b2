"""`lango doctor`: checks what works and what does not, with advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.options import Config, Url, store_flags
from lango.cli.output.printable import printable

if TYPE_CHECKING:
    from lango.cli.diagnosis import CheckResult
    from lango.config.load import LoadedSettings


def doctor(
    apps: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="APPS",
            help="Apps of the settings, or ADK agents by folder or package.module:attribute "
            "(default: all of the settings).",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    config: Config = None,
    models: Annotated[
        bool, typer.Option(help="Make one small real call to every model (it may cost a cent).")
    ] = True,
) -> None:
    """Check the settings, the store, the apps with their MCP servers, and every model."""
    import asyncio

    from lango.config.load import load

    broken, warnings = asyncio.run(_examine(load(config, store_flags(url)), apps or [], models))
    if broken:
        typer.echo(f"\n{broken} of these {'does' if broken == 1 else 'do'} not work.")
        raise typer.Exit(1)
    if warnings:
        many = "warning" if warnings == 1 else "warnings"
        typer.echo(f"\nNothing is broken; see the {warnings} {many} above.")
    else:
        typer.echo("\nAll of it works." if models else "\nAll of it works; no model was tried.")


async def _examine(loaded: LoadedSettings, apps: list[str], models: bool) -> tuple[int, int]:
    from lango.cli.diagnosis import examine

    broken = warnings = 0
    async for finding in examine(loaded, apps, models=models):
        _show(finding)
        broken += not finding.ok
        warnings += finding.warns
    return broken, warnings


def _show(finding: CheckResult) -> None:
    mark, colour = ("ok", typer.colors.GREEN) if finding.ok else ("!!", typer.colors.RED)
    if finding.warns:
        mark, colour = "??", typer.colors.YELLOW
    typer.secho(mark, fg=colour, nl=False)
    typer.echo(f"  {finding.subject:<34} {printable(finding.message)}")
