"""The settings of MCP servers."""

from __future__ import annotations

from pydantic import Field, SecretStr, model_validator

from lango.config.secrets import SecretText
from lango.config.section import Section


class McpServerSettings(Section):
    """An MCP server: a command to run, or a URL to call."""

    command: list[str] | None = Field(
        default=None, min_length=1, description="The program and its arguments (stdio)."
    )
    env: dict[str, SecretText] = Field(
        default_factory=dict[str, SecretStr], description="Its environment variables."
    )
    cwd: str | None = Field(default=None, description="The folder it runs in.")
    url: str | None = Field(default=None, description="Its URL (streamable HTTP).")
    headers: dict[str, SecretText] = Field(
        default_factory=dict[str, SecretStr], description="Headers sent with each request."
    )
    tools: list[str] | None = Field(
        default=None, description="The tools to offer to models; null for all it has."
    )
    require_confirmation: bool | list[str] = Field(
        default=False, description="Tools that ask a person first: true for all, or their names."
    )
    timeout: float = Field(
        default=30.0, gt=0, description="Seconds a call may take; connecting and listing, too."
    )
    prefix: str = Field(default="", description="The prefix of its tools' names.")

    @model_validator(mode="after")
    def _one_way(self) -> McpServerSettings:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either `command` (a program to run) or `url`, not both")
        return self
