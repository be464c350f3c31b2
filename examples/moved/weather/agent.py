"""An ADK agent as `adk create` lays it out; only its model was changed."""

from google.adk import Agent

import lango


def forecast(city: str) -> dict[str, str]:
    """The weather of tomorrow."""
    return {"city": city, "sky": "clear"}


root_agent = Agent(
    name="weather",
    model=lango.ModelAdapter("scripted:demo"),  # was: "gemini-2.5-flash"
    instruction="Tell the weather.",
    tools=[forecast],
)
