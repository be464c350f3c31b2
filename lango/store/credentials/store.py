"""The credentials of users for tools, and the requests for them: all encrypted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.ids import MAX_SESSION_KEY_BYTES, check_id, check_key, fitted, new_id
from lango.core.values import storable_text
from lango.errors import CredentialNotFoundError, CredentialRefusedError, CredentialsDisabledError
from lango.store.credentials.keyring import Keyring, Sealed
from lango.store.db.clock import NOW, ago, now
from lango.store.db.database import Database
from lango.store.db.statement import Prepared, Row, Transaction, only
from lango.store.db.upserts import upsert
from lango.store.schema.tables import credential_requests, credentials

logger = logging.getLogger(__name__)

CALLBACK_PATH: Final = "/v1/credentials/callback"
"""Where a provider of consent sends the user's browser back to."""
_MAX_NAME: Final = 500
"""Bytes of a credential's name: with its owner, it fits a unique key."""
_LONGEST_CLAIM: Final = timedelta(seconds=60)
"""After which a claim to refresh counts as a dead worker's; a refresh ends long before."""
_STATE_TAKEN: Final = "Another request has the same OAuth `state`. Use a random one per request."
_OWNER: Final = ("tenant", "app_name", "user_id")
_IS_OWNER: Final = tuple(credentials.c[name] == sa.bindparam(f"of_{name}") for name in _OWNER)
_OF_OWNER: Final = Prepared(sa.select(credentials).where(*_IS_OWNER).order_by(credentials.c.name))
_OF_NAME: Final = Prepared(
    sa.select(credentials).where(*_IS_OWNER, credentials.c.name == sa.bindparam("of_name"))
)
_IS_VERSION: Final = (
    *_IS_OWNER,
    credentials.c.name == sa.bindparam("of_name"),
    credentials.c.version == sa.bindparam("of_version"),
)
_RESEALED: Final[dict[str, Any]] = {
    "sealed": sa.bindparam("sealed"),
    "key_id": sa.bindparam("key_id"),
}
_RESEAL: Final = Prepared(sa.update(credentials).where(*_IS_VERSION).values(_RESEALED))
_REPLACE: Final = Prepared(
    sa.update(credentials)
    .where(*_IS_VERSION)
    .values(**_RESEALED, version=credentials.c.version + 1, claimed=None, updated=NOW)
    .returning(credentials.c.version)
)
_CLAIM: Final = Prepared(
    sa.update(credentials)
    .where(
        *_IS_VERSION,
        sa.or_(credentials.c.claimed.is_(None), credentials.c.claimed < ago("of_claim")),
    )
    .values(claimed=NOW)
    .returning(credentials.c.version)
)
_RELEASE: Final = Prepared(sa.update(credentials).where(*_IS_VERSION).values(claimed=None))
_DELETE_VERSION: Final = Prepared(sa.delete(credentials).where(*_IS_VERSION))
_STATES: Final = Prepared(
    sa.select(credential_requests.c.state).where(
        credential_requests.c.session_pk == sa.bindparam("of_session"),
        credential_requests.c.turn == sa.bindparam("of_turn"),
    )
)
REQUEST_LASTS: Final = timedelta(days=1)
"""How long a consent may take: its address and code are useless later."""
CLAIM_LASTS: Final = timedelta(minutes=2)
"""After which the claim of a process that died is void; the exchange of a code takes less."""
_IS_REQUEST: Final = (
    credential_requests.c.state == sa.bindparam("of_state"),
    credential_requests.c.created > ago("oldest"),
)
_OF_REQUESTER: Final = tuple(
    credential_requests.c[name] == sa.bindparam(f"of_{name}") for name in _OWNER
)
_REQUEST: Final = Prepared(sa.select(credential_requests).where(*_IS_REQUEST))
_CLAIM_REQUEST: Final = Prepared(
    sa.update(credential_requests)
    .where(
        *_IS_REQUEST,
        *_OF_REQUESTER,
        sa.or_(
            credential_requests.c.claimed.is_(None), credential_requests.c.claimed < ago("stale")
        ),
    )
    .values(claimed=NOW)
    .returning(credential_requests)
)
_IS_CLAIMED: Final = (credential_requests.c.state == sa.bindparam("of_state"), *_OF_REQUESTER)
_RELEASE_REQUEST: Final = Prepared(
    sa.update(credential_requests).where(*_IS_CLAIMED).values(claimed=sa.null())
)
_DELETE_REQUEST: Final = Prepared(sa.delete(credential_requests).where(*_IS_CLAIMED))


def _or_replace(insert: Any) -> Any:
    """An insert of a credential that replaces one of the same name."""
    new_values = {name: insert.excluded[name] for name in ("kind", "key_id", "sealed", "updated")}
    return insert.values(version=1, created=NOW, updated=NOW).on_conflict_do_update(
        index_elements=[*_OWNER, "name"],
        set_={**new_values, "version": credentials.c.version + 1, "claimed": None},
    )


_SAVE: Final = Prepared(
    _or_replace(postgresql.insert(credentials)), on_sqlite=_or_replace(sqlite.insert(credentials))
)


@dataclass(frozen=True, slots=True)
class Owner:
    """The user that credentials belong to."""

    tenant: str
    app_name: str
    user_id: str

    @property
    def columns(self) -> tuple[str, str, str]:
        """The names in the order of the key."""
        return self.tenant, self.app_name, self.user_id

    @property
    def binds(self) -> dict[str, str]:
        """The bind parameters of a statement about this owner."""
        return {f"of_{name}": value for name, value in zip(_OWNER, self.columns, strict=True)}


@dataclass(frozen=True, slots=True)
class StoredCredential:
    """A decrypted credential: `text` is JSON of ADK's AuthConfig."""

    name: str
    text: str
    version: int


@dataclass(frozen=True, slots=True)
class CredentialSummary:
    """What a list shows of a credential: nothing of its content."""

    id: str
    app_name: str
    name: str
    kind: str
    created: datetime
    updated: datetime


@dataclass(frozen=True, slots=True)
class ConsentRequest:
    """A request for a consent, with the secrets that exchanging its code needs."""

    state: str  # random, in the consent address and in the provider's answer
    owner: Owner
    session_pk: int
    turn: str  # the invocation that waits, which is the id of its first turn
    text: str  # JSON of ADK's AuthConfig


class SqlCredentialStore:
    """The credentials of all users. Every operation may be repeated after a fault.

    Without keys it is disabled: operations raise CredentialsDisabledError.
    """

    def __init__(
        self, database: Database, keys: Sequence[str] = (), public_url: str | None = None
    ) -> None:
        self._database = database
        self._keyring = Keyring(keys)
        self.redirect_uri = f"{public_url.rstrip('/')}{CALLBACK_PATH}" if public_url else None

    @property
    def enabled(self) -> bool:
        """Whether there is a key to encrypt with."""
        return bool(self._keyring)

    def require(self) -> Keyring:
        """The keys; CredentialsDisabledError if there are none."""
        if not self._keyring:
            raise CredentialsDisabledError
        return self._keyring

    async def of_owner(self, owner: Owner) -> list[StoredCredential]:
        """All credentials of a user in an app that the keys can decrypt."""
        self.require()
        rows = await self._database.read(_OF_OWNER, **owner.binds)
        decrypted = [await self._decrypted(owner, row) for row in rows]
        return [credential for credential in decrypted if credential is not None]

    async def get(self, owner: Owner, name: str) -> StoredCredential | None:
        """A user's credential by its name."""
        self.require()
        row = only(await self._database.read(_OF_NAME, **owner.binds, of_name=fitted_name(name)))
        return None if row is None else await self._decrypted(owner, row)

    async def _decrypted(self, owner: Owner, row: Row) -> StoredCredential | None:
        """The credential of a row, encrypted anew if another key than the first encrypted it."""
        bound_to = (*owner.columns, row.name)
        text = self._keyring.unseal(Sealed(row.key_id, bytes(row.sealed)), bound_to)
        if text is None:
            logger.warning(
                "Credential %s cannot be decrypted: credentials.keys lacks the key %s, or the row "
                "was changed. The user is asked again.",
                row.id,
                row.key_id,
            )
            return None
        if row.key_id != self._keyring.first_id:
            # With the same version, or a refresh under way could not store its tokens.
            sealed = self._keyring.seal(text, bound_to)
            await self._database.write(
                _RESEAL,
                **_version(owner, row.name, row.version),
                sealed=sealed.data,
                key_id=sealed.key_id,
            )
        return StoredCredential(row.name, text, row.version)

    async def save(self, owner: Owner, name: str, text: str, kind: str) -> None:
        """Store a credential; it replaces one of the same name."""
        row = self.row_of(owner, name, text, kind)
        await self._database.transact(self.put, row)

    def row_of(self, owner: Owner, name: str, text: str, kind: str) -> dict[str, Any]:
        """The encrypted row of a credential, for `put`."""
        check_id("app name", owner.app_name)
        check_id("user id", owner.user_id)
        check_key("user id", *owner.columns, room=MAX_SESSION_KEY_BYTES)
        name = fitted_name(name)
        sealed = self.require().seal(text, (*owner.columns, name))
        values = {"kind": kind, "key_id": sealed.key_id, "sealed": sealed.data}
        of_owner = dict(zip(_OWNER, owner.columns, strict=True))
        return {**of_owner, "name": name, **values, "id": new_id("cred")}

    async def put(self, transaction: Transaction, row: Mapping[str, Any]) -> None:
        """Store a credential's row in a transaction; it replaces one of the same name."""
        await transaction.all(_SAVE, **row)

    async def replace(self, owner: Owner, name: str, text: str, version: int) -> int | None:
        """Replace a credential that still has this version; None if it has another one."""
        name = fitted_name(name)
        sealed = self.require().seal(text, (*owner.columns, name))
        rows = await self._database.write(
            _REPLACE,
            **_version(owner, name, version),
            sealed=sealed.data,
            key_id=sealed.key_id,
        )
        return rows[0].version if rows else None

    async def claim_refresh(self, owner: Owner, name: str, version: int) -> bool:
        """Claim the refresh of this version: one turn has it, until it stores, releases or dies."""
        binds = _version(owner, name, version)
        return bool(await self._database.write(_CLAIM, **binds, of_claim=_LONGEST_CLAIM))

    async def release_refresh(self, owner: Owner, name: str, version: int) -> None:
        """Give up a claim: the credential could not be refreshed now."""
        await self._database.write(_RELEASE, **_version(owner, name, version))

    async def delete_version(self, owner: Owner, name: str, version: int) -> None:
        """Delete a credential that still has this version."""
        await self._database.write(_DELETE_VERSION, **_version(owner, name, version))

    async def list(
        self, tenant: str, user_id: str, app_name: str | None = None
    ) -> list[CredentialSummary]:
        """A user's credentials, by app and name."""
        table = credentials.c
        statement = (
            sa.select(table.id, table.app_name, table.name, table.kind, table.created)
            .add_columns(table.updated)
            .where(table.tenant == tenant, table.user_id == user_id)
            .where(*([] if app_name is None else [table.app_name == app_name]))
            .order_by(table.app_name, table.name)
        )

        async def once(connection: AsyncConnection) -> list[CredentialSummary]:
            rows = await connection.execute(statement)
            return [CredentialSummary(*row) for row in rows]

        return await self._database.read(once)

    async def delete(self, tenant: str, user_id: str, credential_id: str) -> None:
        """Delete a user's credential; CredentialNotFoundError if the user has none of that id."""
        table = credentials.c
        statement = sa.delete(credentials).where(
            table.tenant == tenant, table.user_id == user_id, table.id == credential_id
        )

        async def once(connection: AsyncConnection) -> Any:
            return (await connection.execute(statement)).rowcount

        if not await self._database.write(once):
            raise CredentialNotFoundError

    async def add_request(self, new: ConsentRequest) -> None:
        """Store a request for a consent; a repeated one changes nothing.

        The tenant's requests that have expired are deleted. CredentialRefusedError if the request
        of another turn has its state: an answer could not be told from the other's.
        """
        sealed = self.require().seal(new.text, _of_request(new.state, new.owner, new.turn))
        row = {
            **dict(zip(_OWNER, new.owner.columns, strict=True)),
            "state": new.state,
            "session_pk": new.session_pk,
            "turn": new.turn,
            "key_id": sealed.key_id,
            "sealed": sealed.data,
        }

        async def once(connection: AsyncConnection) -> None:
            table = credential_requests.c
            await connection.execute(
                sa.delete(credential_requests).where(
                    table.tenant == new.owner.tenant, table.created <= ago("oldest")
                ),
                {"oldest": REQUEST_LASTS},
            )
            insert = upsert(connection, credential_requests).values(**row, created=now(connection))
            await connection.execute(insert.on_conflict_do_nothing())
            columns = [credential_requests.c[name] for name in (*_OWNER, "turn")]
            result = await connection.execute(
                sa.select(*columns).where(credential_requests.c.state == new.state)
            )
            if tuple(result.one()) != (*new.owner.columns, new.turn):
                raise CredentialRefusedError(_STATE_TAKEN)

        await self._database.write(once)

    async def states(self, session_pk: int, turn: str) -> set[str]:
        """The states of a turn's requests."""
        rows = await self._database.read(_STATES, of_session=session_pk, of_turn=turn)
        return {row.state for row in rows}

    async def find_request(self, state: str) -> ConsentRequest | None:
        """The request with this state; None if there is none, or no key decrypts it."""
        self.require()
        of_state = storable_text(state)
        return self._request(
            await self._database.read(_REQUEST, of_state=of_state, oldest=REQUEST_LASTS)
        )

    async def claim_request(self, owner: Owner, state: str) -> ConsentRequest | None:
        """The owner's request with this state, for one caller at a time.

        None as `find_request`, and if another caller has claimed it. `release_request` ends the
        claim; that of a process that died ends after CLAIM_LASTS.
        """
        self.require()
        return self._request(
            await self._database.write(
                _CLAIM_REQUEST,
                **owner.binds,
                of_state=storable_text(state),
                oldest=REQUEST_LASTS,
                stale=CLAIM_LASTS,
            )
        )

    async def release_request(self, owner: Owner, state: str) -> None:
        """End a claim: the request can be answered again."""
        await self._database.write(_RELEASE_REQUEST, **owner.binds, of_state=storable_text(state))

    async def delete_request(self, transaction: Transaction, owner: Owner, state: str) -> None:
        """Delete a request that is answered, in the transaction that accepts the answer."""
        await transaction.all(_DELETE_REQUEST, **owner.binds, of_state=storable_text(state))

    def _request(self, rows: Sequence[Row]) -> ConsentRequest | None:
        row = only(rows)
        if row is None:
            return None
        owner = Owner(row.tenant, row.app_name, row.user_id)
        bound_to = _of_request(row.state, owner, row.turn)
        text = self._keyring.unseal(Sealed(row.key_id, bytes(row.sealed)), bound_to)
        if text is None:
            return None
        return ConsentRequest(row.state, owner, row.session_pk, row.turn, text)


def fitted_name(name: str) -> str:
    """A credential's name as it is stored: shortened if it is too long for a key."""
    return fitted(storable_text(name), _MAX_NAME)


def _version(owner: Owner, name: str, version: int) -> dict[str, Any]:
    return {**owner.binds, "of_name": fitted_name(name), "of_version": version}


def _of_request(state: str, owner: Owner, turn: str) -> tuple[str, ...]:
    return "request", *owner.columns, turn, state


async def delete_requests(connection: AsyncConnection, session_pk: int) -> None:
    """Delete the requests of a session's turns."""
    table = credential_requests
    await connection.execute(sa.delete(table).where(table.c.session_pk == session_pk))
