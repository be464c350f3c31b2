"""A draft that is criticised and refined until the critic has nothing left to say."""

from google.adk.agents import (
    LlmAgent,
    LoopAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.tools.tool_context import ToolContext


def exit_loop(tool_context: ToolContext) -> dict[str, str]:
    """Ends the refining. Call it only when the critic asks for no more changes."""
    tool_context.actions.escalate = True
    return {}


drafter = LlmAgent(
    name="drafter",
    model="gemini-2.5-flash",
    include_contents="none",
    instruction="Write the first draft of a short story.",
    output_key="story",
)

critic = LlmAgent(
    name="critic",
    model="gemini-2.5-flash",
    include_contents="none",
    instruction="Criticise this story, or say that it is done:\n{story}",
    output_key="criticism",
)

refiner = LlmAgent(
    name="refiner",
    model="gemini-2.5-flash",
    include_contents="none",
    instruction="Story:\n{story}\nCriticism:\n{criticism}\nRefine it, or call exit_loop.",
    tools=[exit_loop],
    output_key="story",
)

root_agent = SequentialAgent(  # pyright: ignore[reportDeprecated]
    name="authors",
    sub_agents=[
        drafter,
        LoopAgent(  # pyright: ignore[reportDeprecated]
            name="refining", sub_agents=[critic, refiner], max_iterations=4
        ),
    ],
)
