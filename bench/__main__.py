"""`python -m bench AREA [--quick]`, and `scale`, `sustained` and `capacity` with their options."""

from __future__ import annotations

import argparse
import asyncio
import sys
from importlib import import_module
from typing import Final

_AREAS: Final = {
    "store": "the session store beside bare asyncpg and ADK's own",
    "memory": "search in memory beside the bare SQL query",
    "models": "streaming, beside the vendors' own SDKs",
    "turns": "durable turns beside the runner alone",
    "server": "HTTP, beside ADK's own server and a bare one",
    "console": "the pages, on a database that is full",
    "pooled": "the store through PgBouncer in transaction mode",
    "engines": "Temporal and buses beside the database alone",
    "loops": "the server on uvloop beside asyncio's own loop",
    "objects": "a large file in an object store",
    "startup": "the start of commands beside ADK's import",
}
_MODULES: Final = {
    "store": "store.area",
    "turns": "turns.area",
    "server": "server.area",
    "engines": "engines.area",
    "capacity": "capacity.area",
    "pooled": "store.pooled",
    "scale": "store.scale",
    "loops": "server.loops",
    "sustained": "engines.sustained",
}
"""The module of an area, if that is not a module of its name."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench")
    areas = parser.add_subparsers(dest="area", required=True)
    for name, what in _AREAS.items():
        area = areas.add_parser(name, help=what)
        area.add_argument("--quick", action="store_true", help="smaller, where that says enough")
    scale = areas.add_parser("scale", help="10 million messages in 100,000 sessions")
    scale.add_argument("--percent", type=float, default=100.0, help="of that size")
    sustained = areas.add_parser("sustained", help="empty turns at a steady rate")
    sustained.add_argument("--seconds", type=float, default=3_600.0)
    sustained.add_argument("--rate", type=float, default=80.0, help="turns a second")
    sustained.add_argument("--retention", type=float, default=20.0, help="seconds of event logs")
    capacity = areas.add_parser("capacity", help="cores, connections and disk for a turn rate")
    capacity.add_argument("--measure", action="store_true", help="measure the model's inputs here")
    capacity.add_argument("--seed", type=int, default=20, help="of the simulated arrivals")
    return parser.parse_args()


def main() -> int:
    """Run one area; the exit code is its verdict."""
    options = vars(_arguments())
    name = options.pop("area")
    area = import_module(f"bench.{_MODULES.get(name, name)}")  # only what it needs is imported
    return asyncio.run(area.main(**options))


if __name__ == "__main__":
    sys.exit(main())
