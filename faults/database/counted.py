"""A worker process whose model calls are counted outside the database."""

from __future__ import annotations

from multiprocessing.synchronize import Event
from typing import Any, Final

from faults.turns.agents import Effects, in_rounds
from faults.turns.processes import work
from faults.turns.tally import name_in
from faults.turns.workspace import Workspace
from lango.providers.base import ModelRequest
from lango.providers.scripted import Reply, ScriptedProvider

_ASKED: Final = "asked"
_DELAY: Final = 0.01


def counting_work(workspace: Workspace, options: dict[str, Any], ready: Event) -> None:
    """The job of a process: run turns, and record each model call."""

    def counted(request: ModelRequest) -> Reply:
        user_messages = [message.content for message in request.messages if message.role == "user"]
        workspace.effects.add(_ASKED, name_in(user_messages[-1]))
        return in_rounds(request)

    provider = ScriptedProvider(rule=counted, delay=_DELAY)
    work(workspace, options | {"provider": provider}, ready)


def model_calls(effects: Effects) -> dict[str, list[float]]:
    """The times of the model calls, by the name of the turn."""
    found: dict[str, list[float]] = {}
    for line in effects.lines():
        if line[2] == _ASKED:
            found.setdefault(line[3], []).append(float(line[1]))
    return found
