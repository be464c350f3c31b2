"""The turn service of one process, and its workers."""

import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from faults.carriers.choose import chosen_engine
from faults.turns.agents import Effects, loaded
from lango.core.turns.events import ENDS
from lango.providers.scripted import ScriptedProvider
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.log import LoggedEvent
from lango.turns.service import Turns
from lango.turns.worker import TurnWorker, WorkerOptions

END_TYPES = {kind.type for kind in ENDS}


@dataclass(frozen=True)
class Workspace:
    """The surroundings of a test's turns: a database, an app of its own, and a file of effects."""

    url: str
    app: str
    folder: Path

    @property
    def effects(self) -> Effects:
        return Effects(self.folder / "effects")


@contextmanager
def temporary_workspace(url: str) -> Generator[Workspace]:
    """A workspace on a database that others may use too; its folder is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="lango-") as folder:
        yield Workspace(url, f"app_{uuid4().hex}", Path(folder))


class TurnProcess:
    """Stands for a process: several in one test share nothing but the real process."""

    def __init__(self, workspace: Workspace, *, dead_after: float = 5.0) -> None:
        self.workspace = workspace
        self.store = SqlSessionStore(workspace.url)
        self.engine = chosen_engine(self.store.database, dead_after)
        self.turns = Turns(self.store, self.engine)

    def worker(
        self,
        *,
        delay: float = 0.0,
        provider: ScriptedProvider | None = None,
        version: str = "",
        **options: Any,
    ) -> TurnWorker:
        apps = loaded(
            self.store, self.workspace.app, self.workspace.effects, delay, provider, version
        )
        return TurnWorker(self.store, self.engine, apps, WorkerOptions(**options))

    async def say(self, message: str, **options: Any) -> str:
        return (await self.turns.submit(self.workspace.app, message, **options)).id

    async def read(self, turn_id: str, after: int = 0) -> list[LoggedEvent]:
        return [event async for event in self.turns.events(turn_id, after=after)]


@asynccontextmanager
async def turn_process(workspace: Workspace, **options: Any) -> AsyncGenerator[TurnProcess]:
    made = TurnProcess(workspace, **options)
    async with made.store, made.engine:
        yield made


def text_of(events: list[LoggedEvent]) -> str:
    """The text that a reader has at the end, without unfinished messages."""
    drafts: dict[str, str] = {}
    done: list[str] = []
    for event in events:
        message = str(event.data.get("message", ""))
        if event.type == "message.delta":
            drafts[message] = drafts.get(message, "") + str(event.data["text"])
        elif event.type == "message.reset":
            drafts.pop(message, None)
        elif event.type == "message.completed":
            drafts.pop(message, None)
            done.append(str(event.data["text"]))
    assert not drafts, f"left unfinished: {drafts}"
    return "\n".join(done)


def types_of(events: list[LoggedEvent]) -> list[str]:
    return [event.type for event in events]


def check_log(events: list[LoggedEvent]) -> None:
    """Check a log: numbers without a gap, epochs that never decrease, one end, at the end."""
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    epochs = [event.epoch for event in events]
    assert epochs == sorted(epochs)
    ends = [event.number for event in events if event.type in END_TYPES]
    assert ends == [len(events)], types_of(events)
