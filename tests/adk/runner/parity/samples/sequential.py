"""Steps one after the other, each reading what the one before it left in the state."""

from google.adk.agents import LlmAgent, SequentialAgent  # pyright: ignore[reportDeprecated]


def count_lines(code: str) -> dict[str, int]:
    """Counts the lines of a piece of code."""
    return {"lines": len(code.splitlines())}


writer = LlmAgent(
    name="writer",
    model="gemini-2.5-flash",
    instruction="Write the Python code that the user asks for, and nothing else.",
    output_key="code",
)

reviewer = LlmAgent(
    name="reviewer",
    model="gemini-2.5-flash",
    instruction="Review this code:\n{code}\nName the worst problem in one sentence.",
    tools=[count_lines],
    output_key="review",
)

improver = LlmAgent(
    name="improver",
    model="gemini-2.5-flash",
    instruction="Improve the code\n{code}\nas the review says:\n{review}",
    output_key="code",
)

root_agent = SequentialAgent(  # pyright: ignore[reportDeprecated]
    name="pipeline", sub_agents=[writer, reviewer, improver]
)
