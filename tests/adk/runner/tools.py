"""The tools of the agents under test."""

from typing import Any

from google.adk.tools.tool_context import ToolContext
from google.genai import types

LONG = "a result long enough to fill a small window soon when several of its kind follow"


async def remember(key: str, value: str, tool_context: ToolContext) -> dict[str, str]:
    """Set one key of the state, in whatever scope its prefix names."""
    tool_context.state[key] = value
    return {"remembered": key}


async def recall(key: str, tool_context: ToolContext) -> dict[str, Any]:
    """Read one key of the state."""
    return {"value": tool_context.state.get(key, "nothing")}


async def look(number: int) -> dict[str, Any]:
    """Give back a text of some length."""
    return {"number": number, "text": LONG}


async def pay(amount: int, tool_context: ToolContext) -> dict[str, int]:
    """Spend, once a person has confirmed it."""
    spent = int(tool_context.state.get("spent", 0)) + amount
    tool_context.state["spent"] = spent
    return {"paid": amount, "spent": spent}


async def ticket(subject: str) -> dict[str, str]:
    """Open a ticket that a person closes later."""
    return {"status": "pending", "subject": subject}


async def survey(question: str) -> None:
    """Ask a person; there is no result until the answer comes."""
    del question


async def save_note(name: str, text: str, tool_context: ToolContext) -> dict[str, int]:
    """Save a text as an artifact."""
    return {"version": await tool_context.save_artifact(name, types.Part(text=text))}


async def read_note(name: str, tool_context: ToolContext) -> dict[str, Any]:
    """Read the newest version of an artifact."""
    part = await tool_context.load_artifact(name)
    names = await tool_context.list_artifacts()
    return {"text": part.text if part else None, "names": names}
