"""Answers in a given form: by the model alone, and together with tools."""

from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from pydantic import BaseModel, Field


class Question(BaseModel):
    """What the geographer is asked."""

    country: str = Field(description="The country to give information about.")


class Capital(BaseModel):
    """What the geographer answers."""

    capital: str = Field(description="The capital of the country.")
    population: int = Field(description="How many people live there.")
    rivers: list[str] = Field(default_factory=list)


class Report(BaseModel):
    """What the clerk answers."""

    summary: str
    sure: bool


def look_up(country: str) -> dict[str, str]:
    """Looks a country up in the atlas."""
    return {"country": country, "continent": "Europe"}


geographer = LlmAgent(
    name="geographer",
    model="gemini-2.5-flash",
    description="Knows capitals.",
    instruction="Answer with the capital of the country.",
    input_schema=Question,
    output_schema=Capital,
    output_key="capital",
)

root_agent = LlmAgent(
    name="clerk",
    model="gemini-2.5-flash",
    instruction="Look the country up, ask the geographer, and report.",
    tools=[look_up, AgentTool(agent=geographer)],
    output_schema=Report,
    output_key="report",
)
