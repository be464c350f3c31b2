"""What Alembic runs: the connection is given by `lango.store.migrate`, its transaction too."""

from __future__ import annotations

from alembic import context

from lango.store.migrate import VERSION_TABLE
from lango.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
context.run_migrations()
