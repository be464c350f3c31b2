"""The migrations that a version of lango carries, and which older code their tables still serve.

Alembic is asked only when there is something to migrate: it is large, and a process that finds its
tables as it needs them does without it.
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
    """The migrations in the package, and those in further folders, which tests may have."""

    def __init__(self, *folders: Path) -> None:
        self._folders = (_SCRIPTS / "versions", *folders)

    def config(self, connection: sa.Connection | None = None) -> Config:
        """What Alembic is told, and what `migrations/env.py` finds in it."""
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
        """By the names of the files, which begin with what each migration calls itself."""
        files = (file for folder in self._folders for file in folder.glob("[0-9]*_*.py"))
        return frozenset(file.name.partition("_")[0] for file in files)

    @cached_property
    def head(self) -> str:
        """The revision whose tables this version of lango works with: the last of them."""
        if not self._known:
            raise SchemaError("This installation of lango carries no migrations: install it again.")
        return max(self._known)

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
