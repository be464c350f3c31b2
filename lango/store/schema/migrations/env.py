"""What Alembic runs: the connection is given by `lango.store.schema.migrate`.

If that has begun no transaction, each migration gets one of its own.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo

from lango.store.schema.revisions import VERSION_TABLE, Revisions
from lango.store.schema.tables import metadata

revisions: Revisions = context.config.attributes["revisions"]


def _record_oldest_code(
    ctx: MigrationContext,
    step: MigrationInfo,
    heads: object,  # noqa: ARG001 - so Alembic calls it
    run_args: object,  # noqa: ARG001
) -> None:
    """Record, in the transaction of the migration, which older versions of lango may continue."""
    assert ctx.connection is not None and step.up_revision_id is not None  # noqa: S101, PT018
    oldest = revisions.oldest_code(step.up_revision_id)
    row = sa.table(VERSION_TABLE, sa.column("oldest_code", sa.Text))
    ctx.connection.execute(sa.update(row).values(oldest_code=oldest))


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
    transaction_per_migration=True,
    on_version_apply=_record_oldest_code,
)
with context.begin_transaction():
    context.run_migrations()
