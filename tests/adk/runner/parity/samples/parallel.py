"""Researchers at work at the same time, and one who brings their findings together."""

from google.adk.agents import (
    LlmAgent,
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)


def search(topic: str) -> dict[str, str]:
    """Searches the archive for a topic."""
    return {"found": f"three pages about {topic}"}


def researcher(name: str, topic: str) -> LlmAgent:
    """An agent that studies one topic."""
    return LlmAgent(
        name=name,
        model="gemini-2.5-flash",
        instruction=f"Study {topic} and sum it up in a sentence.",
        tools=[search],
        output_key=f"{name}_result",
    )


gathering = ParallelAgent(  # pyright: ignore[reportDeprecated]
    name="gathering",
    sub_agents=[
        researcher("sun", "solar power"),
        researcher("wind", "wind power"),
        researcher("water", "tidal power"),
    ],
)

merger = LlmAgent(
    name="merger",
    model="gemini-2.5-flash",
    instruction="Combine:\n- {sun_result}\n- {wind_result}\n- {water_result}",
    output_key="report",
)

root_agent = SequentialAgent(  # pyright: ignore[reportDeprecated]
    name="research", sub_agents=[gathering, merger]
)
