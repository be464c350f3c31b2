"""`lango keys`: the API keys that the server accepts."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from lango.cli.opened import OpenStore, with_store
from lango.cli.options import Config, Json, Place, Schema, Tenant, Url
from lango.cli.output.printable import one_line

if TYPE_CHECKING:
    from lango.store.keys import ApiKey, KeyStore, MadeKey

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="Make, list, revoke and rotate API keys.")

_DAY: Final = 24 * 3600.0
_HOUR: Final = 3600.0
_WIDTH: Final = 40
_HEADINGS: Final = ("id", "name", "user", "scopes", "limits", "state", "last used")

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The id that `lango keys list` shows.")]


@app.command()
def create(
    user: Annotated[
        str | None, typer.Option(help="The user that requests with this key act for.")
    ] = None,
    name: Annotated[str, typer.Option(help="A label, shown by `lango keys list`.")] = "",
    scope: Annotated[
        list[str] | None,
        typer.Option(help="chat (default), act_as or admin; repeat the option for several."),
    ] = None,
    days: Annotated[
        float | None, typer.Option(help="Days until it expires (default: never).")
    ] = None,
    requests: Annotated[int | None, typer.Option(help="Limit of requests per minute.")] = None,
    turns: Annotated[int | None, typer.Option(help="Limit of concurrent turns.")] = None,
    cost: Annotated[float | None, typer.Option(help="Limit of US dollars per day.")] = None,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Make a key. It is shown once, here, and kept nowhere."""
    from lango.core.keys import KeyLimits

    limits = KeyLimits(requests, turns, cost)
    new_key = _with_keys(
        (url, schema, config),
        tenant,
        lambda keys, whose: keys.create(
            whose,
            user=user,
            name=name,
            scopes=scope or ["chat"],
            limits=limits,
            lifetime=None if days is None else days * _DAY,
        ),
    )
    _show_new_key(new_key, as_json)


@app.command("list")
def list_keys(
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List the keys, those that no longer work among them."""
    api_keys = _with_keys((url, schema, config), tenant, lambda keys, whose: keys.of_tenant(whose))
    if as_json:
        typer.echo(json.dumps([_data(key) for key in api_keys], indent=2, ensure_ascii=False))
    elif api_keys:
        _table(api_keys)
    else:
        typer.echo("There are no keys. `lango keys create --user NAME` makes one.")


@app.command()
def revoke(
    key_id: KeyId,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
) -> None:
    """End a key now. A server that has just seen it may take it for some seconds more."""
    place = (url, schema, config)
    key = _with_keys(place, tenant, lambda keys, whose: keys.revoke(whose, key_id))
    typer.echo(f"The key {key.id} is revoked.")


@app.command()
def rotate(
    key_id: KeyId,
    grace: Annotated[float, typer.Option(help="Hours that the old key still works.")] = 24.0,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Make a key that may do the same as another, which then ends after a while."""
    new_key = _with_keys(
        (url, schema, config),
        tenant,
        lambda keys, whose: keys.rotate(whose, key_id, grace=grace * _HOUR),
    )
    _show_new_key(new_key, as_json)


def _with_keys(
    place: Place, tenant: str | None, work: Callable[[KeyStore, str], Awaitable[T]]
) -> T:
    """Run `work` with the keys of the store and the tenant of the command."""

    def with_keys(opened: OpenStore) -> Awaitable[T]:
        from lango.store.keys import KeyStore

        return work(KeyStore(opened.store.database), opened.tenant)

    return with_store(place, tenant, with_keys, may_create=True)


def _show_new_key(new_key: MadeKey, as_json: bool) -> None:
    if as_json:
        typer.echo(
            json.dumps({**_data(new_key.key), "key": new_key.text}, indent=2, ensure_ascii=False)
        )
        return
    typer.echo(new_key.text)
    typer.echo("This is the only time it is shown: keep it where secrets are kept.", err=True)


def _data(key: ApiKey) -> dict[str, Any]:
    """A key for JSON output; times as ISO 8601."""
    return {
        "id": key.id,
        "tenant": key.tenant,
        "user": key.user,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "limits": key.limits.data() or {},
        "state": _state(key),
        "created": _time(key.created),
        "expires": _time(key.expires),
        "revoked": _time(key.revoked),
        "replaced_by": key.replaced_by,
        "last_used": _time(key.last_used),
    }


def _state(key: ApiKey) -> str:
    if key.revoked is not None:
        return "revoked"
    if key.expires is not None and key.expires <= datetime.now(UTC).timestamp():
        return "expired"
    return "live"


def _time(moment: float | None) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def _table(api_keys: list[ApiKey]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, overflow="fold")
    for key in api_keys:
        style = "" if _state(key) == "live" else "dim"
        table.add_row(*(escape(one_line(cell, _WIDTH)) for cell in _cells(key)), style=style)
    Console(highlight=False).print(table)


def _cells(key: ApiKey) -> tuple[str, ...]:
    limits = ", ".join(f"{name} {value:g}" for name, value in (key.limits.data() or {}).items())
    state = _state(key)
    if state == "live" and key.expires is not None:
        state = f"until {_time(key.expires)}"
    used = _time(key.last_used) or "never"
    scopes = " ".join(sorted(key.scopes))
    return key.id, key.name, key.user or "-", scopes, limits, state, used
