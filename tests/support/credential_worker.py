"""A worker process for the tests of credentials, which a test kills."""

import asyncio
import sys
import warnings
from pathlib import Path

from faults.turns.workspace import Workspace, turn_process
from tests.support.credential_agents import authenticated, clerk, with_keys, worker
from tests.support.oauth_provider import OAuthProvider


async def work(url: str, app: str, folder: str, provider_url: str, client_secret: str) -> None:
    provider = OAuthProvider(url=provider_url, client_secret=client_secret)
    async with turn_process(Workspace(url, app, Path(folder)), dead_after=1.5) as process:
        with_keys(process)
        async with worker(process, clerk(authenticated(provider))):
            await asyncio.Event().wait()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asyncio.run(work(*sys.argv[1:]))
