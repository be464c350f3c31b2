"""The app around it: one line was changed."""

import asyncio
import sys

from google.adk import Runner
from weather.agent import root_agent

import lango


async def main(text: str) -> None:
    """One turn of one session, which the next run continues."""
    # was: sessions = DatabaseSessionService("sqlite+aiosqlite:///weather.db")
    sessions = lango.SessionServiceAdapter("sqlite:///weather.db")
    runner = Runner(app_name="weather", agent=root_agent, session_service=sessions)
    await runner.run_debug(text, user_id="user", session_id="first")
    await runner.close()
    await sessions.close()


asyncio.run(main(" ".join(sys.argv[1:])))
