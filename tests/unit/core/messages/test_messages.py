"""What a message says about itself."""

from dataclasses import FrozenInstanceError

import pytest

from lango.core.messages.messages import Message, ToolCall


def test_a_message_needs_a_role_only() -> None:
    assert Message("user") == Message("user", "", (), "")
    assert ToolCall("1", "search") == ToolCall("1", "search", input="", output="")


@pytest.mark.parametrize(
    ("role", "is_tool", "is_assistant"),
    [
        ("user", False, False),
        ("assistant", False, True),
        ("model", False, True),  # rows of older systems
        ("tool", True, False),
        ("function", True, False),
        ("system", False, False),
        ("control", False, False),
        ("narrator", False, False),
        ("", False, False),
    ],
)
def test_who_spoke(role: str, is_tool: bool, is_assistant: bool) -> None:
    message = Message(role)
    assert (message.is_tool, message.is_assistant) == (is_tool, is_assistant)


def test_messages_are_values() -> None:
    call = ToolCall("1", "search", input="{}")
    message = Message("assistant", "hm", (call,), "root")
    assert {message, Message("assistant", "hm", (ToolCall("1", "search", "{}"),), "root")} == {
        message
    }
    with pytest.raises(FrozenInstanceError):
        message.content = "changed"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(FrozenInstanceError):
        call.output = "changed"  # pyright: ignore[reportAttributeAccessIssue]
