"""A store with an eventful session, for commands that look after sessions and turns."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from tests.cli.running import CommandResult, run
from tests.server.eventful import eventful


def key(tenant: str) -> SessionKey:
    return SessionKey(tenant, "shop", "ann", "s1")


def filled(url: str, tenant: str, *, answered: bool = True) -> str:
    """A session of ann's in which much has happened; its public id."""

    async def fill() -> str:
        async with SqlSessionStore(url) as store:
            await store.create(key(tenant), title="Ann's \x1b[31mtrip")
            async with eventful(store, key(tenant)) as talk:
                approval = await talk.ask()
                if answered:
                    await talk.answer(approval)
            return (await store.summary(key(tenant))).public_id

    return asyncio.run(fill())


class Shell:
    """`lango` on one store, for one tenant."""

    def __init__(self, url: str, tenant: str) -> None:
        self._where = ("--url", url, "--tenant", tenant)

    def run(self, *words: str) -> CommandResult:
        return run(*words, *self._where)

    def out(self, *words: str) -> str:
        done = self.run(*words)
        assert done.code == 0, done.err
        return done.out

    def json(self, *words: str) -> Any:
        return json.loads(self.out(*words, "--json"))

    def refused(self, *words: str) -> str:
        """What a command says that does not do it: one line."""
        done = self.run(*words)
        assert done.code == 1, done
        assert done.err.startswith("lango: ")
        assert done.err.count("\n") == 1
        return done.err
