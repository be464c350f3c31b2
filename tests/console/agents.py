"""The agents that the console is tested and pictured with: a shop's support desk, and a second one.

Their model is scripted. It runs in the server's process, and is paced by what lies in its folder.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent

import lango
from lango.adk.apps.build import llm_agent
from lango.core.messages.messages import ToolCall
from lango.core.messages.streams import StreamEvent, TextDelta
from lango.core.values import json_text
from lango.providers.base import ModelRequest
from lango.providers.scripted import Reply, Rule, ScriptedProvider
from tests.console.stage import DELAY, GATE, HOSTILE

BUDGET = 1_500
PAUSE = "||"
"""A word at which the model waits for the gate."""
_ORDERS = {
    "1042": {
        "order": "1042",
        "items": ["Teapot, 1 l", "Two cups"],
        "status": "delivered",
        "delivered": "2026-11-12",
        "total": 64.5,
        "currency": "EUR",
    }
}
_OFFER = """Order **1042** was delivered on 12 November:

- Teapot, 1 l
- Two cups

What breaks on its way is covered: *money back within 30 days*, and nothing has to be sent back. \
Shall I refund the teapot?"""
_REFUNDED = """Done: **39.00 EUR** are on their way back, under `RF-20931`.

You will see them within two working days."""
_KNOWN = {
    "green tea": """**Bancha** has the least, about a third of a Sencha.

1. Take 3 g for a cup.
2. Let the water cool down to 70 °C.
3. Pour it off after two minutes.""",
    "norway": "Yes, for 14 EUR. It takes five working days, and customs are paid at the door.",
    "charged twice": "I see one charge and one reservation of the same sum. The bank lets the "
    "reservation go by itself, in three days at most.",
    "filter": "There is one of steel, for pots of half a litre: 9.50 EUR, without the set. It fits "
    "the small pot, and the dishwasher does it no harm. " * 12,
}
_STORY = (
    f"Once upon a time there was a turn that no crash could stop. {PAUSE} "
    "Then its worker died, another one went on, and it ended all the same."
)
_FOR_EVER = " ".join(f"word{number}" for number in range(5_000))
_numbers = count(1)


@lango.tool(idempotent=True)
async def find_order(order: str) -> dict[str, Any]:
    """Find an order by its number."""
    await asyncio.sleep(0.15)
    return _ORDERS[order]


@lango.tool(idempotent=True)
async def read_policy(topic: str) -> dict[str, Any]:
    """Read what the shop has written about a topic."""
    await asyncio.sleep(0.1)
    return {"topic": topic, "text": "Broken on arrival: money back within 30 days."}


@lango.tool(require_confirmation=True)
async def refund(order: str, amount: float) -> dict[str, Any]:
    """Give money back to a customer."""
    return {"refunded": amount, "order": order, "reference": "RF-20931"}


@lango.tool
def pack(order: str) -> dict[str, Any]:
    """Pack a parcel; the last things go in when the gate is open."""
    lango.report_progress(1, 4, "folding the box")
    wait_at_the_gate()
    return {"packed": order}


@lango.tool
async def echo(text: str) -> dict[str, Any]:
    """Return the text, with markup that no browser may run."""
    return {"text": text, "markup": HOSTILE}


def call(name: str, **arguments: Any) -> ToolCall:
    """A call of a tool, with an id of its own."""
    return ToolCall(f"call_{os.getpid()}_{next(_numbers)}", name, json_text(arguments))


def _answer(request: ModelRequest) -> Reply | str:
    last = request.messages[-1]
    if last.is_tool:
        return _after(last.tool_calls[-1])
    words = last.content
    match words.lower():
        case text if "order 1042" in text:
            calls = (call("find_order", order="1042"), call("read_policy", topic="broken"))
            return Reply(thoughts="They name an order, and something in it broke.", calls=calls)
        case text if "refund" in text:
            return Reply(calls=(call("refund", order="1042", amount=39.0),))
        case text if "pack" in text:
            return Reply(calls=(call("pack", order="1042"),))
        case text if "story" in text:
            return _STORY
        case text if "for ever" in text:
            return _FOR_EVER
        case text if "out of stock" in text:
            raise LookupError(f"{words} {HOSTILE}")
        case text if "hostile" in text:
            return Reply(f"Here is {HOSTILE}", calls=(call("echo", text="<b>bold</b>"),))
        case text:
            known = (answer for topic, answer in _KNOWN.items() if topic in text)
            return next(known, f"You said: {words}")


def _after(result: ToolCall) -> str:
    match result.name:
        case "refund":
            return "Nothing was refunded." if "error" in str(result.output) else _REFUNDED
        case "pack":
            return "It is packed."
        case "echo":
            return f"It said {HOSTILE}"
        case _:
            return _OFFER


def wait_at_the_gate() -> None:
    """Return once the gate is open."""
    while not Path(GATE).exists():
        time.sleep(0.02)  # a file sends no event when it appears


class _Paced(ScriptedProvider):
    """Speaks at a person's pace, and stops in the middle of a story until it may go on."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        async for event in super().stream(request):
            if isinstance(event, TextDelta) and event.text.strip() == PAUSE:
                await asyncio.to_thread(wait_at_the_gate)
            else:
                yield event


def model(rule: Rule = _answer, token_budget: int = BUDGET) -> lango.ModelAdapter:
    """A model that answers by a rule."""
    delay = float(os.environ[DELAY])
    return lango.ModelAdapter(_Paced(rule=rule, delay=delay), "demo", token_budget=token_budget)


def support() -> LlmAgent:
    """The support desk."""
    return llm_agent(
        "support",
        model(),
        tools=[find_order, read_policy, refund, pack, echo],
        instruction="You are the support desk of a small shop for tea. Be brief, be kind, and ask "
        "before you give money back.",
    )


def research() -> LlmAgent:
    """One without tools."""
    return llm_agent("research", model(), instruction="Find things out, and say where they stand.")
