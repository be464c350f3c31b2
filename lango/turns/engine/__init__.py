"""Engines: what brings sessions with work to workers."""
