"""The session service works without the durable parts, and without the parts of ADK they need."""

import subprocess
import sys

USE = """
import asyncio, sys
from lango import SessionServiceAdapter
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions

async def main():
    async with SessionServiceAdapter("sqlite://") as sessions:
        session = await sessions.create_session(app_name="app", user_id="ann", session_id="one")
        actions = EventActions(state_delta={"plan": "a", "temp:draft": "b"})
        await sessions.append_event(session, Event(author="bot", actions=actions))
        found = await sessions.get_session(app_name="app", user_id="ann", session_id="one")
        print(sorted(session.state.items()), found.state)

asyncio.run(main())
"""
USED = "[('plan', 'a'), ('temp:draft', 'b')] {'plan': 'a'}"
LIST = "print(*sorted(name for name in sys.modules if name.startswith({prefixes})))"
PREFIXES = ("lango.adk.durable", "lango.adk.compat.")
PRIVATE = (
    "google.adk.flows.llm_flows.context._contents",
    "google.adk.tools._forwarding_artifact_service",
    "google.adk.workflow._llm_agent_wrapper",
)


def output_of(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_session_service_imports_no_durable_part() -> None:
    used, loaded = output_of(USE + LIST.format(prefixes=PREFIXES))
    assert used == USED
    assert loaded.split() == ["lango.adk.compat.sessions"]


def test_the_session_service_works_though_adk_lacks_private_modules() -> None:
    """None in `sys.modules` makes an import fail, as if ADK had removed the module."""
    without = f"import sys\nsys.modules.update(dict.fromkeys({PRIVATE}))\n"
    durable = "try:\n import lango.adk.durable.run\nexcept ImportError as error: print(error.name)"
    used, missing = output_of(without + USE + durable)
    assert used == USED
    assert missing in PRIVATE
