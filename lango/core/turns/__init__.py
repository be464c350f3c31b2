"""Turns: states, inputs and events."""
