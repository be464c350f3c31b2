"""Agents: send messages, stream turn events, collect answers."""
