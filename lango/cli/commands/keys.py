"""`lango keys`: the API keys that the server accepts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from lango.cli.opened import OpenStore, with_store
from lango.cli.options import Config, Json, Schema, StoreOptions, Tenant, Url, command_of
from lango.cli.output.printable import one_line
from lango.cli.output.tables import print_folded, print_json

if TYPE_CHECKING:
    from lango.store.keys import ApiKey, KeyStore, MadeKey

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="Create, list, revoke and rotate API keys.")

_DAY: Final = 24 * 3600.0
_HOUR: Final = 3600.0
_WIDTH: Final = 40
_HEADINGS: Final = ("id", "name", "user", "scopes", "limits", "state", "last used")

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The id that `lango keys list` shows.")]


@app.command()
def create(
    user: Annotated[str | None, typer.Option(help="The user that the key acts for.")] = None,
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
    """Create a key and print it, once: the database has only its hash."""
    from lango.core.keys import KeyLimits

    limits = KeyLimits(requests, turns, cost)
    new_key = _with_keys(
        (url, schema, config),
        tenant,
        lambda keys, owner: keys.create(
            owner,
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
    """List the keys, including expired and revoked ones."""
    api_keys = _with_keys((url, schema, config), tenant, lambda keys, owner: keys.of_tenant(owner))
    if as_json:
        print_json([_data(key) for key in api_keys])
    elif api_keys:
        rows = ((_cells(key), _state(key) == "live") for key in api_keys)
        print_folded(_HEADINGS, rows)
    else:
        create = command_of((url, schema, config), "keys", "create", "--user", "NAME")
        typer.echo(f"There are no keys. `{create}` makes one.")


@app.command()
def revoke(
    key_id: KeyId,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
) -> None:
    """Revoke a key. A server that has just accepted it may accept it for 5 more seconds."""
    store_options = (url, schema, config)
    key = _with_keys(store_options, tenant, lambda keys, owner: keys.revoke(owner, key_id))
    typer.echo(f"The key {key.id} is revoked.")


@app.command()
def rotate(
    key_id: KeyId,
    grace: Annotated[
        float, typer.Option(help="Hours that the old key still works; 0: none.")
    ] = 24.0,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Create a key with the permissions of another, which stops working after --grace."""
    new_key = _with_keys(
        (url, schema, config),
        tenant,
        lambda keys, owner: keys.rotate(owner, key_id, grace=grace * _HOUR),
    )
    _show_new_key(new_key, as_json)


def _with_keys(
    store_options: StoreOptions, tenant: str | None, work: Callable[[KeyStore, str], Awaitable[T]]
) -> T:
    """Run `work` with the keys of the store and the tenant of the command."""

    def with_keys(opened: OpenStore) -> Awaitable[T]:
        from lango.store.keys import KeyStore

        return work(KeyStore(opened.store.database), opened.tenant)

    return with_store(store_options, tenant, with_keys, may_create=True)


def _show_new_key(new_key: MadeKey, as_json: bool) -> None:
    if as_json:
        print_json({**_data(new_key.key), "key": new_key.text})
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


def _cells(key: ApiKey) -> tuple[str, ...]:
    limits = ", ".join(f"{name} {value:g}" for name, value in (key.limits.data() or {}).items())
    state = _state(key)
    if state == "live" and key.expires is not None:
        state = f"until {_time(key.expires)}"
    last_used = _time(key.last_used) or "never"
    scopes = " ".join(sorted(key.scopes))
    cells = (key.id, key.name, key.user or "-", scopes, limits, state, last_used)
    return tuple(one_line(cell, _WIDTH) for cell in cells)
