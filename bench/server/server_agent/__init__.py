"""The agent that all servers serve: a folder of its own, as `adk api_server` wants it."""

from . import agent as agent
