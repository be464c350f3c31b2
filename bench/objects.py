"""Files in an object store: the memory that a large one takes, up and down, and the time."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import Final

from bench.measures import run
from bench.report import Table
from bench.rounds import Interval
from bench.targets import Finding, Result, Target
from lango.store.files.contents import CHUNK, SpooledContent
from lango.store.files.uploads import NewFile, SqlFileStore
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore

MOST: Final = 64.0
"""MiB that a file of any size may take beside what a small one takes."""
_FULL: Final = 1024
_QUICK: Final = 128
_AT_MOST: Final = 1_800.0
_WHERE: Final = SessionKey("", "bench", "user", "files")


def measured(folder: str, size: int) -> dict[str, float]:
    """What a file of `size` MiB takes in a new process: MiB and seconds, up and down."""
    command = [sys.executable, "-m", "bench.objects", folder, str(size)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def _up_and_down(files: SqlFileStore, size: int) -> dict[str, float]:
    """Save and read a file; the peak of the memory after either, and the seconds of each."""
    with SpooledContent() as content:
        for number in range(size):
            content.write(bytes([number % 251]) * CHUNK)
        began = time.perf_counter()
        saved = await files.save(_WHERE, NewFile("a.png", "image/png", content))
    up, saved_at, read = _peak(), time.perf_counter(), 0
    async for piece in files.chunks(saved):
        read += len(piece)
    if read != size * CHUNK:
        raise RuntimeError(f"{read} bytes of {size * CHUNK} came back")
    down_s = time.perf_counter() - saved_at
    return {"up": up, "down": _peak(), "up_s": saved_at - began, "down_s": down_s}


async def _measure(folder: str, size: int) -> None:
    url, objects = f"sqlite:///{folder}/lango.db", f"file://{folder}/objects"
    async with SqlSessionStore(url, objects=objects) as store:
        await store.create(_WHERE)
        files = SqlFileStore(store.database)
        await _up_and_down(files, 1)
        before = _peak()
        figures = await _up_and_down(files, size)
    extra = {name: max(0.0, figures[name] - before) for name in ("up", "down")}
    print(json.dumps(figures | extra))


async def _file(size: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        figures = await asyncio.to_thread(measured, folder, size)
    table = Table(f"A file of {size} MiB, in a folder", ("", "memory, MiB", "MiB/s"))
    for way in ("up", "down"):
        table.add(way, f"{figures[way]:.0f}", f"{size / figures[f'{way}_s']:.0f}")
    target = Target(f"{size} MiB up and down, memory", MOST, unit="MiB")
    return Result([table], [Finding(target, Interval.exact(figures["down"]))])


async def main(*, quick: bool) -> int:
    """Run it; the exit code."""
    return await run("objects", [partial(_file, _QUICK if quick else _FULL)], _AT_MOST)


if __name__ == "__main__":
    asyncio.run(_measure(sys.argv[1], int(sys.argv[2])))
