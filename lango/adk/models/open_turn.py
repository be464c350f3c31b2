"""Finds where the open turn begins in a request, from the session's events."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from google.adk.events.event import Event

from lango.adk.models.convert import convert_messages
from lango.core.context.budget import is_quote, open_turn
from lango.core.messages.messages import Message

_USER: Final = "user"


def turn_start(messages: Sequence[Message], events: Sequence[Event]) -> int:
    """The index of the message that opened the turn, or of what ADK adds right before it.

    ADK's contents name neither author nor turn. So the message is found by its content, from the
    end: user messages of failed turns may come directly before it.
    """
    user_messages = [
        (event.invocation_id, message) for event in events for message in _user_messages(event)
    ]
    turn = user_messages[-1][0] if user_messages else ""
    turn_messages = [message for invocation, message in user_messages if invocation == turn]
    indexes = [
        index
        for index, message in enumerate(messages)
        if turn_messages and message == turn_messages[0]
    ]
    if not indexes:
        # An agent that gets its task from another agent does not see the user's message.
        return open_turn(messages)
    start = indexes[-min(turn_messages.count(turn_messages[0]), len(indexes))]
    earlier = {message for invocation, message in user_messages if invocation != turn}
    while start > 0 and _was_added_by_adk(messages[start - 1], earlier):
        start -= 1
    return start


def _user_messages(event: Event) -> list[Message]:
    """The user's messages in an event, without answers to calls."""
    if event.author != _USER or event.content is None:
        return []
    return [message for message in convert_messages([event.content]) if message.role == _USER]


def _was_added_by_adk(message: Message, earlier: Collection[Message]) -> bool:
    """Whether ADK added the message for this request, as it does with memories."""
    return message.role == _USER and message not in earlier and not is_quote(message)
