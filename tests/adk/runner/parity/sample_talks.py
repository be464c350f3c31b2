"""What is said to each sample agent, and what its models answer."""

import json

from tests.adk.runner.parity.sample_runs import SampleScript, call, calls, transfer

_CAPITAL = {"capital": "Paris", "population": 2_100_000, "rivers": ["Seine"]}
_REPORT = {"summary": "Paris it is.", "sure": True}

TALKS = {
    "function_tools": SampleScript(
        ["Is Emma there?", "Reserve it, and Ulysses", "When are you open?"],
        {
            "librarian": [
                calls(call("find_book", title="Emma"), text="Let me look."),
                "It is on shelf A3.",
                calls(
                    call("reserve_book", title="Emma", days=3, notes=["large print"]),
                    call("find_book", title="Dracula"),
                ),
                calls(call("reserve_book", title="Ulysses")),
                "Both are reserved.",
                calls(call("opening_hours")),
                "From 9 to 5.",
            ]
        },
    ),
    "sub_agents": SampleScript(
        ["I have a question about invoice 7", "And is it paid?", "My screen is black", "Thanks"],
        {
            "coordinator": [transfer("billing"), transfer("support")],
            "billing": [
                calls(call("open_invoice", number=7)),
                "Invoice 7 is over 12.50.",
                "Not yet.",
                transfer("coordinator"),
            ],
            "support": ["Is it plugged in?", "You are welcome."],
        },
    ),
    "sequential": SampleScript(
        ["Print hello", "Now in capitals"],
        {
            "writer": ["print('hello')", "print('HELLO')"],
            "reviewer": [
                calls(call("count_lines", code="print('hello')")),
                "It has no main.",
                "It shouts.",
            ],
            "improver": ["def main(): print('hello')", "def main(): print('HELLO!')"],
        },
    ),
    "parallel": SampleScript(
        ["What about energy?", "Anything newer?"],
        {
            "sun": [calls(call("search", topic="sun")), "The sun is big.", "Still big."],
            "wind": [calls(call("search", topic="wind")), "The wind blows.", "It still does."],
            "water": ["Tides come and go.", calls(call("search", topic="tide")), "They do."],
            "merger": ["All of it works.", "And goes on working."],
        },
    ),
    "loop": SampleScript(
        ["A story about a cat", "Another one"],
        {
            "drafter": ["A cat sat.", "A cat ran."],
            "critic": ["Say where.", "It is done.", "Say why.", "It is done."],
            "refiner": [
                "A cat sat on a mat.",
                calls(call("exit_loop")),
                "Nothing to refine.",
                "A cat ran for joy.",
                calls(call("exit_loop"), text="Enough."),
                "It stays as it is.",
            ],
        },
    ),
    "agent_tool": SampleScript(
        ["Sum this up: a long text", "And in French"],
        {
            "editor": [
                calls(call("summarizer", request="a long text")),
                "A summary it is.",
                calls(call("translator", request="A summary."), call("summarizer", request="x")),
            ],
            "summarizer": [
                calls(call("remember_language", language="en")),
                "A summary.",
                "Short.",
            ],
            "translator": ["Un résumé."],
        },
    ),
    "callbacks": SampleScript(
        ["Refund me 12.4", "Refund me 900", "BLOCK this", "Bye"],
        {
            "cashier": [
                calls(call("refund", amount=12.4), text="At once."),
                "Here it is.",
                calls(call("refund", amount=900)),
                "That is too much.",
                "Goodbye.",
            ]
        },
    ),
    "state": SampleScript(
        ["Hello", "Speak French", "Goodbye", "Still there?"],
        {
            "host": [
                "Hello!",
                calls(
                    call("set_preference", name="language", value="French"),
                    call("set_preference", name="number", value="123"),
                ),
                "Bonjour !",
                transfer("closer"),
            ],
            "closer": ["Adieu.", "Hardly."],
        },
        {"user:language": "Latin", "app:changes": 4},
    ),
    "output_schema": SampleScript(
        ["Tell me about France"],
        {
            "clerk": [
                calls(call("look_up", country="France"), call("geographer", country="France")),
                calls(call("set_model_response", **_REPORT)),
            ],
            "geographer": [json.dumps(_CAPITAL)],
        },
    ),
    "workflow": SampleScript(
        ["Where is my parcel?", "urgent: fire", "And my letter?"],
        {"Name the topic": ["parcel", "letter"], "Answer the request": ["On its way.", "Lost."]},
    ),
}
