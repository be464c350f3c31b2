"""The migrations of this version of lango, and which older code works with their tables.

Alembic is imported only when there is something to migrate: it is large, and a process whose
tables fit does not need it.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from lango.errors import SchemaError

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

VERSION_TABLE: Final = "lango_schema_version"
_SCRIPTS: Final = Path(__file__).parent / "migrations"


class Revisions:
    """The migrations in the package, and those in further folders, for tests."""

    def __init__(self, *folders: Path) -> None:
        self._folders = (_SCRIPTS / "versions", *folders)

    def config(self, connection: sa.Connection | None = None) -> Config:
        """The configuration for Alembic and for `migrations/env.py`."""
        from alembic.config import Config

        config = Config()
        config.set_main_option("path_separator", "newline")
        config.set_main_option("script_location", _escaped(str(_SCRIPTS)))
        folders = "\n".join(map(str, self._folders))
        config.set_main_option("version_locations", _escaped(folders))
        config.attributes.update(connection=connection, revisions=self)
        return config

    @cached_property
    def _scripts(self) -> ScriptDirectory:
        from alembic.script import ScriptDirectory

        return ScriptDirectory.from_config(self.config())

    @cached_property
    def _known(self) -> frozenset[str]:
        """The revisions, from the file names, which begin with them."""
        files = (file for folder in self._folders for file in folder.glob("[0-9]*_*.py"))
        revisions = frozenset(file.name.partition("_")[0] for file in files)
        if not revisions:
            raise SchemaError("This installation of lango carries no migrations: install it again.")
        return revisions

    @cached_property
    def head(self) -> str:
        """The newest revision, whose tables this version of lango uses."""
        return max(self._known)

    def knows(self, revision: str | None) -> bool:
        """Whether this version has the migration, and so is at least as new."""
        return revision in self._known

    def is_before_first(self, revision: str) -> bool:
        """Whether the revision is older than the first migration, so that none leads from it."""
        return revision < min(self._known)

    def oldest_code(self, revision: str) -> str:
        """The oldest revision whose code works with the tables of this one.

        A migration declares with `additive = True` that code of the revision before it still works.
        """
        script = self._scripts.get_revision(revision)
        while script.module.additive:
            script = self._scripts.get_revision(str(script.down_revision))
        return script.revision


def _escaped(text: str) -> str:
    return text.replace("%", "%%")  # an option of an ini file


OURS: Final = Revisions()
"""The migrations of this version."""
