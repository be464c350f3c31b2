"""Programs that are no good MCP servers, run as processes of their own: `mcp_rogue.py KIND`."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any


def freeze() -> None:
    """Tell the test, and never do anything again."""
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write("frozen\n")
    os.kill(os.getpid(), signal.SIGSTOP)


def rave() -> None:
    """Speak as no SDK would let one: a list of tools that is none."""
    version: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
    results: dict[str, Any] = {
        "initialize": {**version, "serverInfo": {"name": "wild", "version": "0"}},
        "tools/list": {"tools": [{"name": "wild", "inputSchema": ["x"]}]},
    }
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = results.get(request["method"], {})
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


if __name__ == "__main__":
    {"frozen": freeze, "wild": rave}[sys.argv[1]]()
