"""${message}"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
additive = True  # code of the revision before goes on working (docs/adr/0013)


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
