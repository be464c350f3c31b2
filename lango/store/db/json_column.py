"""The type of our JSON columns."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lango.core.values import json_text, json_value


class _JsonText(sa.TypeDecorator[Any]):
    """JSON as TEXT, for SQLite, whose own JSON columns turn the text 1.0 into the number 1."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, *, none_as_null: bool) -> None:
        super().__init__()
        self.none_as_null = none_as_null

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        return None if value is None and self.none_as_null else json_text(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:  # noqa: ARG002
        return None if value is None else json_value(value)


def json_column(*, none_as_null: bool = True) -> sa.types.TypeEngine[Any]:
    """`json`, not `jsonb`, on PostgreSQL: it keeps numbers and the order of keys (ADR 4).

    With `none_as_null`, None is stored as SQL's NULL, without it as the JSON value null.
    """
    plain: sa.types.TypeEngine[Any] = sa.JSON(none_as_null=none_as_null)
    return plain.with_variant(_JsonText(none_as_null=none_as_null), "sqlite")
