"""The least that could serve the agent: a FastAPI endpoint, ADK's Runner, no store, no key.

`python -m bench.server.bare PORT`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from google.adk.agents.run_config import RunConfig
from google.adk.runners import Runner
from google.genai import types
from pydantic import BaseModel

from bench.events import APP, USER
from bench.server.server_agent.agent import root_agent
from bench.store.free import FreeSessionService
from bench.store.runner_turn import spare_failing_import

app = FastAPI()
_sessions = FreeSessionService()
_runner = Runner(app_name=APP, agent=root_agent, session_service=_sessions)
_STREAMED = RunConfig.model_validate({"streaming_mode": "sse"})


class NewTurn(BaseModel):
    """A client's message and its session."""

    session: str
    message: str


@app.post("/sessions")
async def create() -> dict[str, str]:
    """A new session."""
    return {"id": (await _sessions.create_session(app_name=APP, user_id=USER)).id}


@app.post("/turns")
async def run(new: NewTurn) -> StreamingResponse:
    """Run a turn, and stream ADK's events."""
    return StreamingResponse(_events(new), media_type="text/event-stream")


async def _events(new: NewTurn) -> AsyncGenerator[str]:
    message = types.Content(role="user", parts=[types.Part(text=new.message)])
    events = _runner.run_async(
        user_id=USER, session_id=new.session, new_message=message, run_config=_STREAMED
    )
    async with aclosing(events):
        async for event in events:
            yield f"data: {event.model_dump_json(exclude_none=True, by_alias=True)}\n\n"
    # It would keep all messages in memory, which the others have on disk.
    await _sessions.delete_session(app_name=APP, user_id=USER, session_id=new.session)


if __name__ == "__main__":
    spare_failing_import()
    uvicorn.run(app, port=int(sys.argv[1]), access_log=False, log_level="warning")
