"""One agent with plain functions as its tools."""

from typing import Any

from google.adk.agents import Agent
from google.adk.tools.tool_context import ToolContext

SHELVES = {"emma": "A3", "ulysses": "B7"}


def find_book(title: str) -> dict[str, str]:
    """Finds the shelf of a book.

    Args:
        title: The title of the book.

    Returns:
        The status and, if the book is there, its shelf.
    """
    shelf = SHELVES.get(title.lower())
    if shelf is None:
        return {"status": "error", "error_message": f"There is no book called {title}."}
    return {"status": "success", "shelf": shelf}


async def reserve_book(
    title: str, tool_context: ToolContext, days: int = 14, notes: list[str] | None = None
) -> dict[str, Any]:
    """Reserves a book for the reader.

    Args:
        title: The title of the book.
        days: For how long.
        notes: What the librarian should know.
    """
    reserved = [*tool_context.state.get("reserved", []), title]
    tool_context.state["reserved"] = reserved
    tool_context.state["user:last_title"] = title
    return {"status": "success", "days": days, "notes": notes, "count": len(reserved)}


def opening_hours() -> str:
    """Says when the library is open."""
    return "9 to 5"


root_agent = Agent(
    name="librarian",
    model="gemini-2.5-flash",
    description="Answers questions about the books of the library.",
    instruction="Find books with find_book and reserve them with reserve_book.",
    tools=[find_book, reserve_book, opening_hours],
)
