"""A guarded agent: callbacks around the agent, its model and its tool."""

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types


def begin(callback_context: CallbackContext) -> types.Content | None:
    """Counts the visits, and turns visitors away while the desk is closed."""
    callback_context.state["visits"] = callback_context.state.get("visits", 0) + 1
    if callback_context.state.get("closed"):
        return types.Content(role="model", parts=[types.Part(text="We are closed.")])
    return None


def end(callback_context: CallbackContext) -> types.Content | None:
    """Adds a farewell to every third visit."""
    if callback_context.state["visits"] % 3 == 0:
        return types.Content(role="model", parts=[types.Part(text="Thank you for coming back.")])
    return None


def guard_input(callback_context: CallbackContext, llm_request: LlmRequest) -> LlmResponse | None:
    """Keeps a forbidden word from the model, and adds a rule to the instruction."""
    callback_context.state["model_calls"] = callback_context.state.get("model_calls", 0) + 1
    llm_request.append_instructions(["Never promise anything."])
    last = llm_request.contents[-1].parts or []
    if any("BLOCK" in (part.text or "") for part in last):
        refusal = types.Content(role="model", parts=[types.Part(text="I cannot speak of that.")])
        return LlmResponse(content=refusal)
    return None


def sign(callback_context: CallbackContext, llm_response: LlmResponse) -> LlmResponse | None:
    """Signs what the model says, once it has said all of it."""
    parts = (llm_response.content and llm_response.content.parts) or []
    if llm_response.partial or not parts or not parts[0].text:
        return None
    parts[0].text += f" ({callback_context.agent_name})"
    return llm_response


def check_arguments(
    tool: BaseTool, args: dict[str, Any], tool_context: ToolContext
) -> dict[str, Any] | None:
    """Refuses what costs too much, and rounds the rest."""
    if args["amount"] > 100:
        return {"result": f"{tool.name} is limited to 100."}
    args["amount"] = round(args["amount"])
    tool_context.state["refunded"] = args["amount"]
    return None


def add_receipt(
    tool: BaseTool, args: dict[str, Any], tool_context: ToolContext, tool_response: Any
) -> dict[str, Any] | None:
    """Adds a receipt to what the tool gave."""
    del tool, tool_context
    return {**tool_response, "receipt": f"R-{args['amount']}"}


def refund(amount: float) -> dict[str, Any]:
    """Pays money back."""
    return {"refunded": amount}


root_agent = LlmAgent(
    name="cashier",
    model="gemini-2.5-flash",
    instruction="Help customers with refunds.",
    tools=[refund],
    before_agent_callback=begin,
    after_agent_callback=end,
    before_model_callback=guard_input,
    after_model_callback=sign,
    before_tool_callback=check_arguments,
    after_tool_callback=add_receipt,
)
