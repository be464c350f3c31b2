"""A support desk: one agent answers, another pays back, and a person has the last word on money."""

import os

from google.adk.agents import LlmAgent
from rehearsal import rehearsed

import lango

ORDERS = {17: "three books, on their way", 18: "a map, delivered"}


def model() -> lango.ModelAdapter:
    """A real model if MODEL names one (openai:gpt-5), else one that has learnt its lines."""
    return lango.ModelAdapter(os.environ["MODEL"]) if "MODEL" in os.environ else rehearsed()


@lango.tool
def find_order(number: int) -> str:
    """Find out what an order is and where."""
    if number not in ORDERS:
        raise lango.ToolError(f"There is no order {number}.")
    return ORDERS[number]


@lango.tool(require_confirmation=True)
def refund(number: int, call: lango.CallInfo) -> str:
    """Pay an order back."""
    # A payment provider would be given call.key: the same call, tried again, pays once.
    return f"Order {number} was paid back to {call.user_id}."


refunds = LlmAgent(
    name="refunds",
    description="Pays orders back.",
    instruction="Pay back what the customer asks for, and say that it was done.",
    model=model(),
    tools=[lango.ToolAdapter(refund)],
)
root_agent = LlmAgent(
    name="support",
    description="Answers questions about orders.",
    instruction="Help the customers of a bookshop. Pass refunds on to the agent refunds.",
    model=model(),
    tools=[lango.ToolAdapter(find_order)],
    sub_agents=[refunds],
)
