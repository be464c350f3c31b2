"""State that instructions are made of, in every scope, and an answer that is kept in it."""

from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.tool_context import ToolContext


def set_preference(name: str, value: str, tool_context: ToolContext) -> dict[str, str]:
    """Remembers what the user prefers.

    Args:
        name: What it is about.
        value: What the user prefers.
    """
    tool_context.state[f"user:{name}"] = value
    tool_context.state["app:changes"] = tool_context.state.get("app:changes", 0) + 1
    tool_context.state["temp:scratch"] = value
    tool_context.state["last_change"] = name
    return {"status": "success"}


def closing_instruction(context: ReadonlyContext) -> str:
    """An instruction that is made for each request."""
    return f"Close the talk about {context.state.get('last_change', 'nothing')}."


closer = LlmAgent(
    name="closer",
    model="gemini-2.5-flash",
    description="Says goodbye.",
    instruction=closing_instruction,
    output_key="goodbye",
)

root_agent = LlmAgent(
    name="host",
    model="gemini-2.5-flash",
    instruction=(
        "Greet in {user:language?}. Last time you said: {greeting?}. There were {app:changes} "
        "changes in this house. JSON looks like {{'a': 1}}."
    ),
    tools=[set_preference],
    output_key="greeting",
    sub_agents=[closer],
)
