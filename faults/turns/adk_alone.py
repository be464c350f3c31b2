"""The same turns on google-adk alone: its own resumable sessions, the same kills.

After a kill a client sends its message again. In every other session it does better: it resumes the
invocation that holds its message already, if there is one.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.synchronize import Event as Ready
from typing import Any, Final
from uuid import uuid4

from google.adk.apps.app import App, ResumabilityConfig
from google.adk.runners import Runner
from google.adk.sessions import DatabaseSessionService
from google.genai import types
from sqlalchemy import make_url

from faults.harness import Run
from faults.recovery.kill_shapes import quiet
from faults.turns.agents import Effects, agent_of
from faults.turns.processes import Crew
from faults.turns.tally import Shape, Tally, by_session, count, story_of
from faults.turns.workspace import Workspace, temporary_workspace
from lango.store.db.database import Database

_USER: Final = "user"
_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class Load:
    """The turns for some processes, and the time between two kills."""

    shape: Shape
    per_session: int
    processes: int
    delay: float
    pauses: tuple[float, float]
    turns_per_kill: int

    def names(self, count: int) -> dict[str, str]:
        """The session of each turn: in order in each session, the sessions side by side."""
        sessions = max(count // self.per_session, 1)
        return {f"s{n % sessions}n{n // sessions}": f"s{n % sessions}" for n in range(count)}


async def adk_alone(run: Run, load: Load, most_kills: int) -> str:
    """The damage after the kills, in one line."""
    drawn, schema = random.Random(run.seed), f"adk_{uuid4().hex}"
    sessions = by_session(load.names(run.count))
    database = Database(run.databases.postgres, pool_size=1)
    await database.fetch(f'create schema "{schema}"')
    try:
        with temporary_workspace(run.databases.postgres) as workspace:
            service = _service(workspace.url, schema)
            for session in sessions:
                await service.create_session(
                    app_name=workspace.app, user_id=_USER, session_id=session
                )
            crews = _crews(workspace, schema, load, sessions)
            kills = await _kill_until_over(crews, drawn, run.count, load.pauses, most_kills)
            halves = [
                await _tally(service, workspace, load.shape, _every_other(sessions, first))
                for first in (0, 1)
            ]
            await service.close()
    finally:
        await database.fetch(f'drop schema "{schema}" cascade')
        await database.close()
    return f"{kills} kills; sent again: {halves[0]}; resumed: {halves[1]}"


def _every_other(sessions: Mapping[str, list[str]], first: int) -> dict[str, list[str]]:
    return {name: sessions[name] for name in list(sessions) if _number(name) % 2 == first}


def _number(session: str) -> int:
    return int(session.removeprefix("s"))


def _crews(
    workspace: Workspace, schema: str, load: Load, sessions: Mapping[str, list[str]]
) -> list[Crew]:
    """A process each for its share of the sessions."""
    shares = [
        {session: sessions[session] for session in list(sessions)[n :: load.processes]}
        for n in range(load.processes)
    ]
    return [Crew(workspace, 1, job=_serve, schema=schema, load=load, sessions=s) for s in shares]


async def _kill_until_over(
    crews: list[Crew],
    drawn: random.Random,
    count: int,
    pauses: tuple[float, float],
    most: int,
) -> int:
    kills, over = 0, _over(crews[0].workspace)
    for crew in crews:
        await crew.__aenter__()
    try:
        while len({words for words in over.words() if words.startswith("over ")}) < count:
            await asyncio.sleep(drawn.uniform(*pauses))
            if kills < most:
                kills += 1
                await drawn.choice(crews).replace(0)
    finally:
        for crew in crews:
            await crew.__aexit__()
    return kills


def _over(workspace: Workspace) -> Effects:
    """The turns that the client has begun, and those that are over."""
    return Effects(workspace.folder / "over")


def _service(url: str, schema: str) -> DatabaseSessionService:
    plain = make_url(url).set(drivername="postgresql+asyncpg")
    return DatabaseSessionService(
        plain.render_as_string(hide_password=False),
        connect_args={"server_settings": {"search_path": schema}},
        max_overflow=0,  # the server is not ours alone
    )


async def _tally(
    service: DatabaseSessionService,
    workspace: Workspace,
    shape: Shape,
    sessions: Mapping[str, list[str]],
) -> Tally:
    histories: list[list[str]] = []
    for session in sessions:
        found = await service.get_session(app_name=workspace.app, user_id=_USER, session_id=session)
        histories.append(story_of(found.events if found else ()))
    names = [name for each in sessions.values() for name in each]
    return count(shape, names, histories, workspace.effects.words())


def _serve(workspace: Workspace, options: dict[str, Any], ready: Ready) -> None:
    """Run the turns of some sessions, from where a process before was killed."""
    quiet()
    asyncio.run(_serve_all(workspace, options, ready))


async def _serve_all(workspace: Workspace, options: dict[str, Any], ready: Ready) -> None:
    load: Load = options["load"]
    sessions: dict[str, list[str]] = options["sessions"]
    app = App(
        name=workspace.app,
        root_agent=agent_of(workspace.effects, load.delay),
        resumability_config=ResumabilityConfig(is_resumable=True),
    )
    runner = Runner(app=app, session_service=_service(workspace.url, options["schema"]))
    ready.set()
    jobs = (_talk(runner, workspace, load.shape, session) for session in sessions.items())
    await asyncio.gather(*jobs)


async def _talk(
    runner: Runner, workspace: Workspace, shape: Shape, session: tuple[str, list[str]]
) -> None:
    """The turns of one session, one after the other."""
    over = _over(workspace)
    for name in session[1]:
        known = Counter(over.words())
        while not known[f"over {name}"]:
            over.add("begun", name)
            try:
                await _turn(runner, session[0], shape.message(name))
                over.add("over", name)
            except Exception as error:  # noqa: BLE001 - it is tried again, as a client would
                over.add("failed", name, type(error).__name__)
                if known[f"begun {name}"] >= _TRIES:
                    over.add("over", name)
            known = Counter(over.words())


async def _turn(runner: Runner, session: str, message: str) -> None:
    found = await runner.session_service.get_session(
        app_name=runner.app_name, user_id=_USER, session_id=session
    )
    events = found.events if found and _number(session) % 2 else ()
    cut = [event.invocation_id for event in events if message in str(event.content)]
    new = types.Content(role="user", parts=[types.Part(text=message)])
    request: dict[str, Any] = {"invocation_id": cut[0]} if cut else {"new_message": new}
    async for _ in runner.run_async(user_id=_USER, session_id=session, **request):
        pass
