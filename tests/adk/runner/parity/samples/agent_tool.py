"""Agents that another one uses as its tools."""

from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.tool_context import ToolContext


def remember_language(language: str, tool_context: ToolContext) -> dict[str, str]:
    """Remembers the language of the text."""
    tool_context.state["language"] = language
    return {"remembered": language}


summarizer = LlmAgent(
    name="summarizer",
    model="gemini-2.5-flash",
    description="Sums up a text.",
    instruction="Sum up the text in one sentence.",
    tools=[remember_language],
)

translator = LlmAgent(
    name="translator",
    model="gemini-2.5-flash",
    description="Translates a text into French.",
    instruction="Translate the text into French.",
    output_key="translated",
)

root_agent = LlmAgent(
    name="editor",
    model="gemini-2.5-flash",
    instruction="Use the summarizer, then the translator, and show the result.",
    tools=[AgentTool(agent=summarizer), AgentTool(agent=translator, skip_summarization=True)],
)
