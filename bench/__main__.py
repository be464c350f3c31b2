"""`python -m bench AREA [--quick]`, and `python -m bench scale [--percent N]`."""

from __future__ import annotations

import argparse
import asyncio
import sys


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench")
    areas = parser.add_subparsers(dest="area", required=True)
    store = areas.add_parser("store", help="the session store beside bare asyncpg and ADK's own")
    store.add_argument("--quick", action="store_true", help="only what noise does not move")
    models = areas.add_parser("models", help="streaming, beside the vendors' own SDKs")
    models.add_argument("--quick", action="store_true", help="accepted, and changes nothing")
    turns = areas.add_parser("turns", help="durable turns beside the runner alone")
    turns.add_argument("--quick", action="store_true", help="smaller queues, fewer rounds")
    server = areas.add_parser("server", help="HTTP, beside ADK's own server and a bare one")
    server.add_argument("--quick", action="store_true", help="fewer rounds, fewer turns")
    console = areas.add_parser("console", help="the pages, on a database that is full")
    console.add_argument("--quick", action="store_true", help="fewer rounds")
    scale = areas.add_parser("scale", help="10 million messages in 100,000 sessions")
    scale.add_argument("--percent", type=float, default=100.0, help="of that size")
    return parser.parse_args()


def main() -> int:
    """Run one area; the exit code is its verdict."""
    arguments = _arguments()
    if arguments.area == "scale":
        from bench import scale

        return asyncio.run(scale.main(percent=arguments.percent))
    if arguments.area == "models":
        from bench import models

        return asyncio.run(models.main(quick=arguments.quick))
    if arguments.area == "turns":
        from bench import turns

        return asyncio.run(turns.main(quick=arguments.quick))
    if arguments.area == "server":
        from bench import server

        return asyncio.run(server.main(quick=arguments.quick))
    if arguments.area == "console":
        from bench import console

        return asyncio.run(console.main(quick=arguments.quick))
    from bench import store

    return asyncio.run(store.main(quick=arguments.quick))


if __name__ == "__main__":
    sys.exit(main())
