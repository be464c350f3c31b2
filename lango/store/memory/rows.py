"""Entries of memory in a transaction: from the messages of a session, and their deletion.

An entry has the key of the message it came from, so a message is remembered once, however often
its turn is closed or its session is added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.memory import MAX_TEXT, index_text, indexed_words, owner_word
from lango.core.turns.events import Completed, End, InputRequired
from lango.store.db.statement import Prepared, Row, Transaction
from lango.store.schema.tables import memories, messages, sessions
from lango.store.sessions.entries import SessionKey

if TYPE_CHECKING:
    from lango.store.db.database import Database
    from lango.store.turns.rows import Turn

# Literals, not parameters: a list would be expanded anew for each statement.
IS_SAID: Final = sa.and_(
    sa.or_(
        messages.c.role == sa.literal_column("'user'"),
        messages.c.role == sa.literal_column("'assistant'"),
    ),
    messages.c.content != sa.literal_column("''"),
    messages.c.undone_by.is_(None),
)
"""The messages that people and models have written, as far as no rewind undid them."""
TEXT: Final = sa.func.substr(messages.c.content, 1, MAX_TEXT).label("content")
"""What an entry takes of a message: as much as it is found by."""
OF_SESSION: Final = messages.c.session_pk == sa.bindparam("of_session")
_TURN_TEXTS: Final = Prepared(
    sa.select(messages.c.seq, TEXT)
    .join(sessions, sessions.c.pk == messages.c.session_pk)
    .where(
        OF_SESSION,
        messages.c.seq >= sessions.c.turn_seq,
        messages.c.invocation_id == sa.bindparam("of_invocation"),
        IS_SAID,
    )
    .order_by(messages.c.seq)
)
_FROM_MESSAGE: Final = (
    sa.select(
        *(sessions.c.tenant, sessions.c.app_name, sessions.c.user_id, sessions.c.pk, sessions.c.id),
        *(messages.c.event_id, messages.c.author, messages.c.role, messages.c.timestamp),
        *(TEXT, sa.bindparam("words", type_=sa.Text)),
    )
    .join_from(sessions, messages, messages.c.session_pk == sessions.c.pk)
    .where(
        OF_SESSION,
        messages.c.seq == sa.bindparam("of_seq"),
        messages.c.undone_by.is_(None),
    )
)
MESSAGE_COLUMNS: Final = (
    *("tenant", "app_name", "user_id", "session_pk", "session_id"),
    *("event_id", "author", "role", "timestamp", "text", "terms"),
)
"""The columns that an entry takes from its message and its session."""
_ADD_MESSAGE: Final = Prepared(
    postgresql.insert(memories)
    .from_select(MESSAGE_COLUMNS, _FROM_MESSAGE)
    .on_conflict_do_nothing(),
    on_sqlite=sqlite.insert(memories)
    .from_select(MESSAGE_COLUMNS, _FROM_MESSAGE)
    .on_conflict_do_nothing(),
)
_LONG: Final = 50_000
"""Characters of words that are indexed in a few milliseconds."""
_MERGE_WORDS: Final = sa.text("insert into memory_words (memory_words) values ('optimize')")


class TurnText(NamedTuple):
    """A message of a turn, and its words as an entry stores them."""

    seq: int
    terms: str


async def turn_texts(database: Database, turn: Turn, end: End) -> list[TurnText]:
    """The messages of a claimed turn that join its user's memory when it ends so.

    Those of a turn that failed or was cancelled do not. Its worker alone appends to the session:
    the transaction that closes the turn finds the same messages.
    """
    if not isinstance(end, Completed | InputRequired):
        return []
    parameters = {"of_session": turn.session_pk, "of_invocation": turn.invocation_id}
    return await with_terms(turn.session, await database.read(_TURN_TEXTS, **parameters))


def is_long(texts: Sequence[TurnText]) -> bool:
    """Whether it takes long to index some texts: on SQLite, a thread does it then."""
    return sum(len(text.terms) for text in texts) > _LONG


async def remember(transaction: Transaction, session_pk: int, texts: Sequence[TurnText]) -> None:
    """Add messages of a session to its user's memory, unless they are there already."""
    values = [{"of_session": session_pk, "of_seq": text.seq, "words": text.terms} for text in texts]
    if values:
        await transaction.each(_ADD_MESSAGE, values)


async def forget_session(connection: AsyncConnection, session_pk: int) -> None:
    """Delete the entries of a session."""
    await _delete(connection, memories.c.session_pk == session_pk)


async def forget_undone(connection: AsyncConnection, session_pk: int, first_seq: int) -> None:
    """Delete the entries of the messages that a rewind undoes."""
    undone = sa.select(messages.c.event_id).where(
        messages.c.session_pk == session_pk, messages.c.seq >= first_seq
    )
    await _delete(connection, memories.c.session_pk == session_pk, memories.c.event_id.in_(undone))


async def forget_user(connection: AsyncConnection, user: SessionKey, *, all_of_it: bool) -> int:
    """Delete the entries of a user, or those that belong to no session; returns their number."""
    conditions = [memories.c[name] == value for name, value in user.of_user.items()]
    if not all_of_it:
        conditions.append(memories.c.session_pk.is_(None))
    return await _delete(connection, *conditions)


async def _delete(connection: AsyncConnection, *conditions: sa.ColumnElement[bool]) -> int:
    deleted = await connection.execute(sa.delete(memories).where(*conditions))
    if deleted.rowcount:
        await merge_words(connection)
    return deleted.rowcount


async def merge_words(connection: AsyncConnection) -> None:
    """On SQLite, remove deleted words from the index: it would keep them until its next merge."""
    if connection.dialect.name == "sqlite":
        await connection.execute(_MERGE_WORDS)


async def with_terms(key: SessionKey, rows: Sequence[Row]) -> list[TurnText]:
    """Messages of a session with their words; other tasks run between two of them."""
    texts: list[TurnText] = []
    for row in rows:
        texts.append(TurnText(row.seq, terms_of(key, row.content)))
        await asyncio.sleep(0)
    return texts


def terms_of(key: SessionKey, text: str) -> str:
    """The words of a text as its entry stores them."""
    return index_text(owner_of(key), indexed_words(text))


def owner_of(key: SessionKey) -> str:
    """The word of a session's user, which all entries of the user have."""
    return owner_word(key.tenant, key.app_name, key.user_id)
