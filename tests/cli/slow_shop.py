"""A project whose model takes its time, and what its turns leave in the database."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.rows import Turn
from lango.store.turns.submit import SqlTurnStore

DOOMED = {"SHOP_DELAY": "0.5"}  # half a minute for the words below: time enough to be killed in
SLOW = {"SHOP_DELAY": "0.1"}
WORDS = " ".join(f"word{number}" for number in range(60))
_SHOP = """\
import asyncio
import os
from pathlib import Path

import lango
from lango.adk.apps.build import llm_agent
from lango.providers.scripted import ScriptedProvider


@lango.tool
async def hold() -> str:
    "Wait for a file."
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "released"


def make():
    delay = float(os.environ.get("SHOP_DELAY", "0"))
    model = lango.ModelAdapter(ScriptedProvider(delay=delay), "demo")
    return llm_agent("shop", model, tools=[hold])
"""


@dataclass(frozen=True)
class Shop:
    """The project, on a database that others may use too."""

    folder: Path
    url: str
    tenant: str

    @property
    def app(self) -> str:
        """A name unique to this shop: a worker claims turns of its apps from every tenant."""
        return f"shop_{self.tenant[-8:]}"

    def write(self, **settings: object) -> None:
        """Write the settings and the code."""
        lines = [f"{name}: {value}" for name, value in settings.items()]
        store = f"store: {{url: '{self.url}', tenant: {self.tenant}}}"
        (self.folder / "lango.yaml").write_text(
            "\n".join([f"apps: {{{self.app}: shop:make}}", store, *lines])
        )
        (self.folder / "shop.py").write_text(_SHOP)

    def history(self, session: str) -> list[tuple[str, str]]:
        """Who said what."""

        async def read() -> list[tuple[str, str]]:
            async with SqlSessionStore(self.url) as store:
                rows = await store.messages(self._key(session))
            return [(row.role, row.content) for row in rows if row.content]

        return asyncio.run(read())

    def turns(self, session: str) -> list[Turn]:
        """The session's turns, the first one first."""

        async def read() -> list[Turn]:
            async with SqlSessionStore(self.url) as store:
                return await SqlTurnStore(store.database).of_session(self._key(session))

        return asyncio.run(read())[::-1]

    def _key(self, session: str) -> SessionKey:
        return SessionKey(self.tenant, self.app, "user", session)
