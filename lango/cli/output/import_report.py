"""The output of `lango db import-adk`: a progress bar, then a report."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn
from rich.table import Table

from lango.adk.sessions.import_adk import ImportReport, import_adk
from lango.cli.output.session_files import progress_bar
from lango.store.sessions.store import SqlSessionStore
from lango.store.transfer.adk_source import AdkSource


async def import_with_progress(
    source_url: str, url: str, schema: str | None, tenant: str
) -> ImportReport:
    """Import, with a progress bar."""
    async with AdkSource(source_url) as source, SqlSessionStore(url, schema=schema) as store:
        _, events = await source.count()
        with progress_bar("copying events", events, MofNCompleteColumn()) as advance:
            return await import_adk(source, store, tenant=tenant, watch=advance)


def show_report(report: ImportReport) -> None:
    """Print what was imported, and the problems."""
    console = Console(highlight=False)
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in _lines(report):
        table.add_row(name, value)
    console.print(table)
    for problem in report.problems:
        console.print(
            f"[red]{_shown(problem.subject)}[/]: {_shown(problem.reason)}", soft_wrap=True
        )
    if report.problem_count > len(report.problems):
        console.print(f"… and {report.problem_count - len(report.problems):,} more.")
    console.print(_verdict(report), soft_wrap=True)


def _shown(text: str) -> str:
    """A text from a database, with unprintable characters replaced."""
    return escape("".join(letter if letter.isprintable() else "\ufffd" for letter in text))


def _lines(report: ImportReport) -> list[tuple[str, str]]:
    sessions = f"{report.sessions:,} ({report.new_sessions:,} new"
    if report.continued_sessions:
        sessions += f", {report.continued_sessions:,} changed here since and left as they are"
    events = f"{report.events:,} ({report.added:,} added"
    if report.empty_events:
        events += f", {report.empty_events:,} that carry nothing and are not kept"
    return [
        ("sessions", sessions + ")"),
        ("events", events + ")"),
        ("states", f"{report.app_states:,} of apps, {report.user_states:,} of users"),
        ("sha256", report.checksum),
    ]


def _verdict(report: ImportReport) -> str:
    if not report.ok:
        plural = "" if report.problem_count == 1 else "s"
        return f"[red]Not the same:[/] {report.problem_count:,} problem{plural}, see above."
    if report.continued_sessions:
        return "[green]Verified:[/] every session has the source's events, in their order."
    return "[green]Verified:[/] every session has the same events, order and state as the source."
