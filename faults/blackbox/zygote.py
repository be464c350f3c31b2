"""Forks `lango …` processes with all imports done, each in a session of its own.

A line on standard input requests one: `{"id", "argv", "env", "folder", "log"}`. A line on standard
output reports its process id, and later its exit code. When the input ends, all of them are killed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
import traceback
from contextlib import suppress
from typing import Any, Final

_NEEDED: Final = (
    *(
        "faults.turns.warm",
        "lango.app",
        "lango.cli.commands.serve",
        "lango.cli.commands.worker",
        "lango.server.app",
    ),
    *("lango.server.process", "lango.providers.openai_chat", "google.adk.workflow", "openai"),
    *("google.adk.tools.agent_tool", "uvicorn", "uvloop", "httptools"),
)


def _report(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _run_command(request: dict[str, Any]) -> None:
    """In the child: redirect output and errors to the log, then run the `lango` command."""
    from lango.cli import main

    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for new, old in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(new, old)
    os.setsid()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    sys.path.insert(0, request["folder"])
    sys.argv = ["lango", *request["argv"]]
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - the log is all that is left of a child
        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)


def _reap(children: set[int]) -> None:
    while children:
        process, status = os.waitpid(-1, os.WNOHANG)
        if not process:
            return
        children.discard(process)
        _report(ended=process, code=os.waitstatus_to_exitcode(status))


def main() -> None:
    """Fork a process for each request until standard input closes."""
    for name in _NEEDED:
        importlib.import_module(name)
    gc.freeze()
    _report(ready=os.getpid())
    children: set[int] = set()
    rest = b""
    while True:
        if select.select([0], [], [], 0.05)[0]:
            more = os.read(0, 65_536)
            if not more:
                break
            *lines, rest = (rest + more).split(b"\n")
            for line in lines:
                request = json.loads(line)
                child = os.fork()
                if not child:
                    _run_command(request)
                children.add(child)
                _report(id=request["id"], started=child)
        _reap(children)
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
