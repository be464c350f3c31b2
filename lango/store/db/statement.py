"""Statements that are built once, with bind parameters for their values.

To build, look up and run a statement costs SQLAlchemy some ten times the CPU of sending it. These
are compiled once, and sent on a leased connection (ADR 3), or executed on SQLite's own (ADR 28):
each is written once.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

_Decode = Callable[[Any], Any]


class Row(Protocol):
    """A row whose columns are attributes."""

    def __getattr__(self, name: str, /) -> Any: ...


class _Parameter(NamedTuple):
    """One argument of a statement: a value by its name, or a constant."""

    name: str | None
    constant: Any
    encode: Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True)
class DriverStatement:
    """A statement as asyncpg or sqlite3 takes it."""

    sql: str
    parameters: tuple[_Parameter, ...]
    row: Callable[[Iterable[Any]], Row]
    decoders: tuple[_Decode | None, ...] = ()
    """For each column, what makes its value; empty if the driver makes them all."""

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The values in the order of the statement's arguments."""
        arguments: list[Any] = []
        for name, constant, encode in self.parameters:
            value = constant if name is None else values[name]
            arguments.append(value if encode is None else encode(value))
        return arguments

    def rows(self, records: Iterable[Iterable[Any]]) -> list[Row]:
        """The returned records as rows."""
        if not self.decoders:
            return [self.row(record) for record in records]
        return [self.row(self._decoded(record)) for record in records]

    def _decoded(self, record: Iterable[Any]) -> Iterator[Any]:
        for value, decode in zip(record, self.decoders, strict=True):
            yield value if decode is None else decode(value)


class Prepared:
    """One statement, for both databases.

    The values of an insert, and those that an update sets, have the names of their columns: as in
    SQLAlchemy, the statement writes the columns that have a value.
    """

    def __init__(self, statement: sa.Executable, *, on_sqlite: sa.Executable | None = None) -> None:
        self._statement = statement
        self._on_sqlite = statement if on_sqlite is None else on_sqlite
        self._wired: dict[tuple[str, ...], DriverStatement] = {}

    def of(self, dialect: sa.Dialect) -> sa.Executable:
        """The statement for SQLAlchemy."""
        return self._on_sqlite if dialect.name == "sqlite" else self._statement

    def wired(self, dialect: sa.Dialect, names: Iterable[str]) -> DriverStatement:
        """The statement for the driver of a dialect, with values of these names."""
        key = (dialect.name, *names)
        statement = self._wired.get(key)
        if statement is None:
            statement = self._wired[key] = _wired(self.of(dialect), dialect, key[1:])
        return statement


def _wired(statement: Any, dialect: sa.Dialect, names: Sequence[str]) -> DriverStatement:
    compiled = statement.compile(dialect=dialect, column_keys=list(names))
    parameters: list[_Parameter] = []
    for name in compiled.positiontup:
        bind = compiled.binds[name]
        encode = bind.type.dialect_impl(dialect).bind_processor(dialect)
        if name not in names and bind.required:
            raise TypeError(f"The statement has no value for {name}.")
        parameters.append(_Parameter(name if name in names else None, bind.effective_value, encode))
    columns = statement.exported_columns
    row, decoders = row_of_columns(*columns.keys()), _decoders(columns.values(), dialect)
    return DriverStatement(str(compiled), tuple(parameters), row, decoders)


def _decoders(columns: Iterable[Any], dialect: sa.Dialect) -> tuple[_Decode | None, ...]:
    """What makes the values of columns; asyncpg makes them itself."""
    if dialect.name == "postgresql":
        return ()
    decoders = tuple(
        column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns
    )
    return decoders if any(decoders) else ()


def row_of_columns(*columns: str) -> Callable[[Iterable[Any]], Row]:
    """Makes rows with these columns from the records of a driver."""
    kind: Any = namedtuple("Row", columns)  # pyright: ignore[reportUntypedNamedTuple]
    return kind._make


class Transaction(Protocol):
    """A transaction, for prepared statements."""

    async def all(self, statement: Prepared, **values: Any) -> Sequence[Row]:
        """The rows of a statement."""
        ...

    async def one(self, statement: Prepared, **values: Any) -> Row | None:
        """The row of a statement that has one at most."""
        ...

    async def each(self, statement: Prepared, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for several sets of values, all of the same names."""
        ...


class CoreTransaction:
    """An SQLAlchemy transaction, which can run any other statement as well."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection

    async def all(self, statement: Prepared, **values: Any) -> Sequence[Row]:
        """The rows of a statement."""
        result = await self.connection.execute(statement.of(self.connection.dialect), values)
        return result.all() if result.returns_rows else []

    async def one(self, statement: Prepared, **values: Any) -> Row | None:
        """The row of a statement that has one at most."""
        return only(await self.all(statement, **values))

    async def each(self, statement: Prepared, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for several sets of values."""
        await self.connection.execute(statement.of(self.connection.dialect), list(rows))


def only(rows: Sequence[Row]) -> Row | None:
    """The only row; None if there is none, LookupError if there are several."""
    if len(rows) > 1:
        raise LookupError(f"{len(rows)} rows where there is one at most.")
    return rows[0] if rows else None
