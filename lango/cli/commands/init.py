"""`lango init`: writes a project that works without an API key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from lango.core.extras import install
from lango.errors import ConfigError

SETTINGS: Final = """\
# yaml-language-server: $schema=lango.schema.json
apps:
  assistant:
    agent:
      # A model without a key, which calls a tool when you name one. For a real one set its key,
      # install its SDK, and write, for example,
      #   model: openai:gpt-5                   # pip install "lango-adk[openai]"
      #   model: anthropic:claude-sonnet-4-5    # pip install "lango-adk[anthropic]"
      #   model: gemini:gemini-2.5-flash        # its SDK is installed
      #   model: ollama:qwen3                   # pip install "lango-adk[openai]"; no key
      model: scripted:demo
      instruction: You are a helpful assistant. Use your tools when they help.
      tools:
        - builtin:time
        - tools:roll_dice

store:
  url: sqlite:///lango.db
"""
TOOLS: Final = '''\
"""Tools of the assistant: typed functions, whose docstrings tell the model what they are for."""

import random

import lango


@lango.tool
def roll_dice(sides: int = 6) -> int:
    """Roll a die.

    Args:
        sides: How many sides it has.
    """
    return random.randint(1, sides)
'''
IGNORED: Final = "lango.db*\n__pycache__/\n.env\n"
STEPS: Final = f"""\
  lango run "hello"
  lango run "roll_dice please"      # the model calls a tool
  lango chat

For a real model, install its SDK, set its key, and change one line of lango.yaml:

  {install("openai")}
  export OPENAI_API_KEY=…           # then: model: openai:gpt-5
  lango doctor                      # checks that all of it works

For an HTTP API and a console in the browser:

  {install("server")}
  lango serve"""


def init(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The folder; created if missing."),
    ],
) -> None:
    """Write a small project: settings, a tool, and a model that needs no key."""
    from lango.config.settings import published_schema

    files = {
        "lango.yaml": SETTINGS,
        "lango.schema.json": published_schema(),
        "tools.py": TOOLS,
        ".gitignore": IGNORED,
    }
    present = [name for name in files if (folder / name).exists()]
    if present:
        raise ConfigError(
            f"{folder} has {', '.join(present)} already, and nothing is overwritten: "
            "choose another folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    typer.echo(f"{folder} is ready. Try it:\n")
    if folder.resolve() != Path.cwd():
        typer.echo(f"  cd {folder}")
    typer.echo(STEPS)
