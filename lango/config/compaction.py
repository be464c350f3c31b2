"""The settings of summaries, `apps.NAME.compaction`."""

from __future__ import annotations

from pydantic import Field, model_validator

from lango.config.section import Section


class CompactionSettings(Section):
    """Summaries of long conversations, in place of their older messages."""

    turns: int | None = Field(
        default=None, ge=1, description="New turns after which a summary replaces them."
    )
    overlap: int = Field(
        default=0, ge=0, description="With `turns`: earlier turns that are summarised again."
    )
    tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of a request from which older events are summarised.",
    )
    keep_events: int = Field(
        default=20, ge=0, description="With `tokens`: the newest events, which stay as they are."
    )
    model: str | None = Field(
        default=None, description="provider:name; null: the model of the app's first agent."
    )
    prompt: str | None = Field(
        default=None,
        description="The instruction, with `{conversation_history}` in it; null: ADK's own.",
    )

    @model_validator(mode="after")
    def _has_a_start(self) -> CompactionSettings:
        if self.turns is None and self.tokens is None:
            raise ValueError("give `turns` or `tokens`, or both: when a summary is made")
        for name, needed in (("overlap", "turns"), ("keep_events", "tokens")):
            if name in self.model_fields_set and getattr(self, needed) is None:
                raise ValueError(f"`{name}` needs `{needed}`")
        return self

    @model_validator(mode="after")
    def _has_placeholder(self) -> CompactionSettings:
        if self.prompt is not None:
            mark = "\0"
            try:
                filled = self.prompt.format(conversation_history=mark)
            except (LookupError, ValueError):
                filled = ""
            if mark not in filled:
                raise ValueError(
                    "`prompt` must contain {conversation_history}; write other braces twice"
                )
        return self
