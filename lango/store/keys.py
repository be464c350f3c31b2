"""API keys: create, find, list, revoke and rotate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.ids import check_id
from lango.core.keys import ACT_AS, ADMIN, CHAT, NO_LIMITS, KeyLimits, KeyText, checked_scopes
from lango.core.values import JsonObject, storable_text
from lango.errors import InvalidKeyError, KeyNotFoundError
from lango.store.db.clock import NOW, ago, now, seconds, seconds_or_none
from lango.store.db.database import Database
from lango.store.db.statement import Prepared, Row, only
from lango.store.schema.tables import api_keys

GRACE: Final = 24 * 3600.0
"""Seconds that a rotated key still works, by default."""
_USE_NOTED: Final = timedelta(minutes=1)  # not on every request: a key in use is one hot row


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A stored key, without its secret. Times are epoch seconds."""

    id: str
    tenant: str
    user: str | None
    name: str
    scopes: frozenset[str]
    limits: KeyLimits
    created: float
    expires: float | None = None
    revoked: float | None = None
    replaced_by: str | None = None
    last_used: float | None = None


class MadeKey(NamedTuple):
    """A new key, and the text that its owner must keep: it cannot be read again."""

    key: ApiKey
    text: str


class KeyStore:
    """The API keys of a database. Every operation may be repeated after a fault."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        tenant: str,
        *,
        user: str | None = None,
        name: str = "",
        scopes: Iterable[str] = (CHAT,),
        limits: KeyLimits = NO_LIMITS,
        lifetime: float | None = None,
    ) -> MadeKey:
        """Create a key, valid for `lifetime` seconds or until it is revoked.

        InvalidKeyError if it has neither a user nor the scope `act_as` or `admin`: it could do
        nothing but list agents.
        """
        allowed = checked_scopes(scopes)
        if user is not None:
            check_id("user id", user)
        elif not allowed & {ACT_AS, ADMIN}:
            raise InvalidKeyError(
                "A key belongs to a user, or has the scope act_as and says for whom it acts."
            )
        row: JsonObject = {
            "tenant": storable_text(tenant),
            "user_id": user,
            "name": storable_text(name),
            "scopes": sorted(allowed),
            "limits": limits.checked().data(),
        }
        life = None if lifetime is None else _positive("lifetime", lifetime)
        secret = KeyText.new()  # before the first try: a retry reuses it

        async def once(connection: AsyncConnection) -> MadeKey:
            return MadeKey(_key(await _insert(connection, secret, row, life)), secret.text)

        return await self._database.write(once)

    async def find(self, key_text: KeyText) -> ApiKey | None:
        """The key that a client has sent; None if it is unknown, expired or revoked."""
        row = only(await self._database.read(_FIND, of_id=key_text.id, recent=_USE_NOTED))
        if row is None or not key_text.fits(row.hash):
            return None
        if not row.is_noted:
            await self._database.write(_NOTE_USE, of_id=row.id)
        return _key(row)

    async def limits_of(self, tenant: str, key_id: str) -> KeyLimits:
        """The limits of a key, even an expired or revoked one; NO_LIMITS if there is none."""
        statement = sa.select(api_keys.c.limits).where(_is_key(tenant, key_id))
        row = await self._database.read(lambda connection: connection.scalar(statement))
        return NO_LIMITS if row is None else KeyLimits.of(row)

    async def any(self) -> bool:
        """Whether the database holds a key of any tenant, even an expired or revoked one."""
        statement = sa.select(sa.exists(sa.select(api_keys.c.id)))
        return bool(await self._database.read(lambda connection: connection.scalar(statement)))

    async def of_tenant(self, tenant: str) -> list[ApiKey]:
        """A tenant's keys, the oldest first, including expired and revoked ones."""
        statement = sa.select(api_keys).where(api_keys.c.tenant == tenant)

        async def once(connection: AsyncConnection) -> list[ApiKey]:
            rows = await connection.execute(statement.order_by(api_keys.c.created, api_keys.c.id))
            return [_key(row) for row in rows]

        return await self._database.read(once)

    async def revoke(self, tenant: str, key_id: str) -> ApiKey:
        """Revoke a key now; one that is revoked already keeps its time of revocation."""

        async def once(connection: AsyncConnection) -> ApiKey:
            row = await _locked(connection, tenant, key_id)
            if row.revoked is None:
                row = await _change(connection, row, revoked=now(connection))
            return _key(row)

        return await self._database.write(once)

    async def rotate(self, tenant: str, key_id: str, *, grace: float = GRACE) -> MadeKey:
        """Create a key with the same rights; the old one expires within `grace` seconds.

        The new key gets the lifetime that the old one was created with.
        """
        if grace < 0:
            raise InvalidKeyError(f"The grace must not be below 0 seconds: {grace}.")
        secret = KeyText.new()

        async def once(connection: AsyncConnection) -> MadeKey:
            old = await _locked(connection, tenant, key_id)
            if old.replaced_by != secret.id:  # else an earlier try has committed
                await _replace(connection, old, secret, timedelta(seconds=grace))
            statement = sa.select(api_keys).where(_is_key(tenant, secret.id))
            return MadeKey(_key((await connection.execute(statement)).one()), secret.text)

        return await self._database.write(once)


_OF_ID: Final = api_keys.c.id == sa.bindparam("of_id")
_IS_NOTED: Final = api_keys.c.last_used >= ago("recent")
_IS_VALID: Final = sa.and_(
    api_keys.c.revoked.is_(None),
    sa.or_(api_keys.c.expires.is_(None), api_keys.c.expires > NOW),
)
_FIND: Final = Prepared(sa.select(api_keys, _IS_NOTED.label("is_noted")).where(_OF_ID, _IS_VALID))
_NOTE_USE: Final = Prepared(sa.update(api_keys).where(_OF_ID).values(last_used=NOW))


async def _insert(
    connection: AsyncConnection, secret: KeyText, row: JsonObject, life: timedelta | None
) -> sa.Row[Any]:
    moment = now(connection)
    values = {**row, "id": secret.id, "hash": secret.hash, "created": moment}
    values["expires"] = None if life is None else moment + life
    statement = sa.select(api_keys).where(_is_key(row["tenant"], secret.id))
    # An earlier try's row, whose reply was lost.
    existing = (await connection.execute(statement)).one_or_none()
    if existing is not None:
        return existing
    insertion = sa.insert(api_keys).values(values).returning(api_keys)
    return (await connection.execute(insertion)).one()


async def _replace(
    connection: AsyncConnection, old: sa.Row[Any], secret: KeyText, grace: timedelta
) -> None:
    if old.replaced_by is not None:
        raise InvalidKeyError(f"The key {old.id} was rotated already, to {old.replaced_by}.")
    lives = sa.select(api_keys.c.id).where(_is_key(old.tenant, old.id), _IS_VALID)
    if await connection.scalar(lives) is None:
        raise InvalidKeyError(f"The key {old.id} no longer works. Create a new one.")
    columns = ("tenant", "user_id", "name", "scopes", "limits")
    row = {name: getattr(old, name) for name in columns}
    life = None if old.expires is None else old.expires - old.created
    await _insert(connection, secret, row, life)
    ends: Any = now(connection) + grace
    if old.expires is not None:
        ends = sa.case((api_keys.c.expires < ends, api_keys.c.expires), else_=ends)
    await _change(connection, old, replaced_by=secret.id, expires=ends)


async def _locked(connection: AsyncConnection, tenant: str, key_id: str) -> sa.Row[Any]:
    statement = sa.select(api_keys).where(_is_key(tenant, key_id)).with_for_update()
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        raise KeyNotFoundError(f"There is no API key {key_id} here.")
    return row


async def _change(connection: AsyncConnection, row: sa.Row[Any], **values: Any) -> sa.Row[Any]:
    update = sa.update(api_keys).where(_is_key(row.tenant, row.id)).values(values)
    return (await connection.execute(update.returning(api_keys))).one()


def _is_key(tenant: str, key_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(api_keys.c.tenant == tenant, api_keys.c.id == key_id)


def _positive(label: str, value: float) -> timedelta:
    if not value > 0:
        raise InvalidKeyError(f"The {label} of a key must be above 0 seconds, not {value}.")
    return timedelta(seconds=value)


def _key(row: Row) -> ApiKey:
    return ApiKey(
        id=row.id,
        tenant=row.tenant,
        user=row.user_id,
        name=row.name,
        scopes=frozenset(row.scopes),
        limits=KeyLimits.of(row.limits),
        created=seconds(row.created),
        expires=seconds_or_none(row.expires),
        revoked=seconds_or_none(row.revoked),
        replaced_by=row.replaced_by,
        last_used=seconds_or_none(row.last_used),
    )
