"""The migrations that a version of lango carries, and which older code their tables still serve."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory

from lango.errors import SchemaError

VERSION_TABLE: Final = "lango_schema_version"
_SCRIPTS: Final = Path(__file__).parent / "migrations"


class Revisions:
    """The migrations in the package, and those in further folders, which tests may have."""

    def __init__(self, *folders: Path) -> None:
        self._folders = (_SCRIPTS / "versions", *folders)

    def config(self, connection: sa.Connection | None = None) -> Config:
        """What Alembic is told, and what `migrations/env.py` finds in it."""
        config = Config()
        config.set_main_option("path_separator", "newline")
        config.set_main_option("script_location", _escaped(str(_SCRIPTS)))
        folders = "\n".join(map(str, self._folders))
        config.set_main_option("version_locations", _escaped(folders))
        config.attributes.update(connection=connection, revisions=self)
        return config

    @cached_property
    def _scripts(self) -> ScriptDirectory:
        return ScriptDirectory.from_config(self.config())

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(script.revision for script in self._scripts.walk_revisions())

    @cached_property
    def head(self) -> str:
        """The revision whose tables this version of lango works with."""
        revision = self._scripts.get_current_head()
        if revision is None:
            raise SchemaError("This installation of lango carries no migrations: install it again.")
        return revision

    def knows(self, revision: str | None) -> bool:
        """Whether this version carries the migration, and so is as new as it, or newer."""
        return revision in self._known

    def oldest_code(self, revision: str) -> str | None:
        """The oldest revision whose code works with the tables of this one; None: unsaid.

        A migration says by `additive = True` that code of the revision before it goes on working.
        Those from before there was such a word say nothing.
        """
        if not hasattr(self._scripts.get_revision(revision).module, "additive"):
            return None
        oldest = revision
        while getattr((script := self._scripts.get_revision(oldest)).module, "additive", False):
            oldest = str(script.down_revision)
        return oldest


def _escaped(text: str) -> str:
    return text.replace("%", "%%")  # an option of an ini file


OURS: Final = Revisions()
"""What this version carries."""
