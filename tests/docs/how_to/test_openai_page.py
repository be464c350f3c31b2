"""The example of the page on OpenAI clients runs as it stands."""

import asyncio
import os
import re
import sys
from pathlib import Path
from uuid import uuid4

from faults.turns.workspace import Workspace
from tests.server.served_apps import live, served_app

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/openai-clients.md"


async def test_the_example_runs(sqlite_url: str, tmp_path: Path, tenant: str) -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    workspace = Workspace(sqlite_url, f"app_{uuid4().hex}", tmp_path)
    async with served_app(workspace, tenant) as opened, live(opened, opened.worker()) as server:
        ran = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", example),
            env=os.environ | {"LANGO_URL": server.url, "LANGO_KEY": "ann"},
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await ran.communicate()
        async with server.client() as client:
            [session] = (await client.get("/v1/sessions")).json()["sessions"]
    assert ran.returncode == 0
    assert printed.decode() == "You said: Hello\nYou said: Go on"
    assert session["messages"] == 4
