"""A coordinator that hands over to specialists."""

from google.adk.agents import LlmAgent


def open_invoice(number: int) -> dict[str, object]:
    """Looks up an invoice by its number."""
    return {"number": number, "amount": 12.5, "paid": False}


billing = LlmAgent(
    name="billing",
    model="gemini-2.5-flash",
    description="Handles questions about invoices and payments.",
    instruction="Answer billing questions. Look invoices up before you speak of them.",
    tools=[open_invoice],
)

support = LlmAgent(
    name="support",
    model="gemini-2.5-flash",
    description="Handles technical problems.",
    instruction="Solve technical problems.",
    disallow_transfer_to_peers=True,
)

root_agent = LlmAgent(
    name="coordinator",
    model="gemini-2.5-flash",
    description="The first one people talk to.",
    instruction="Route each request: billing for money, support for technical problems.",
    sub_agents=[billing, support],
)
