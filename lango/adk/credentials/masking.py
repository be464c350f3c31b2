"""Masks the secrets of a turn's user in what is stored, shown, or sent to a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from lango.core.redaction import MASK
from lango.core.values import storable_json

_MIN_SECRET: Final = 6
"""Shorter texts may occur by chance, and are not masked."""


class Secrets:
    """The texts to mask. Names, ids and roles are never masked: a password may equal one."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, texts: Iterable[str]) -> None:
        """Mask these texts from now on; the longest first, as one may be the start of another."""
        new = {text for text in texts if len(text) >= _MIN_SECRET}
        if not new.issubset(self._texts):
            self._texts = sorted(new.union(self._texts), key=lambda text: (-len(text), text))

    def masked(self, value: Any) -> Any:
        """A value with the secrets masked; the same object if it has none."""
        if not self._texts or value is None:
            return value
        plain = storable_json(_plain(value))
        masked = self._masked(plain)
        return value if masked == plain else masked

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret in self._texts:
                value = value.replace(secret, MASK)
            return value
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {self._masked(key): self._masked(inner) for key, inner in items}
        if isinstance(value, list):
            return [self._masked(inner) for inner in cast("list[Any]", value)]
        return value

    def drop(self, actions: EventActions) -> None:
        """Remove state changes that hold a secret: they stay in memory, for this run."""
        for name in list(actions.state_delta) if self._texts else ():
            value = actions.state_delta[name]
            if self.masked(value) is not value:
                del actions.state_delta[name]

    def mask_event(self, event: Event) -> None:
        """Mask an event in place; ADK continues with this object."""
        if not self._texts:
            return
        self.drop(event.actions)
        event.content = self.content(event.content)
        if (summary := event.actions.compaction) is not None:
            summary.compacted_content = (
                self.content(summary.compacted_content) or summary.compacted_content
            )
        for holder, name in (
            (event, "output"),
            (event, "error_message"),
            (event, "custom_metadata"),
            (event.actions, "agent_state"),
        ):
            value = getattr(holder, name)
            masked = self.masked(value)
            if masked is not value:
                setattr(holder, name, masked)

    def mask_request(self, request: LlmRequest) -> None:
        """Mask the instruction and the messages of a model request in place."""
        if not self._texts:
            return
        instruction = cast(object, request.config.system_instruction)  # pyright: ignore[reportUnknownMemberType]
        if isinstance(instruction, types.Content):
            request.config.system_instruction = self.content(instruction)
        elif isinstance(instruction, str):
            request.config.system_instruction = self._masked(instruction)
        for index, content in enumerate(request.contents):
            request.contents[index] = self.content(content) or content

    def content(self, content: types.Content | None) -> types.Content | None:
        """A copy with its secrets masked; the same object if it has none."""
        if content is None or not content.parts or not self._texts:
            return content
        parts = [self._part(part) for part in content.parts]
        is_unchanged = all(new is old for new, old in zip(parts, content.parts, strict=True))
        return content if is_unchanged else content.model_copy(update={"parts": parts})

    def _part(self, part: types.Part) -> types.Part:
        changed: dict[str, Any] = {}
        if part.text and (text := self._masked(part.text)) != part.text:
            changed["text"] = text
        for name, field in (
            ("function_call", "args"),
            ("function_response", "response"),
            ("executable_code", "code"),
            ("code_execution_result", "output"),
        ):
            holder: Any = getattr(part, name)
            if holder is None:
                continue
            value = getattr(holder, field)
            masked = self.masked(value)
            if masked is not value:
                changed[name] = holder.model_copy(update={field: masked})
        return part.model_copy(update=changed) if changed else part


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value
