"""Durable turns beside the runner alone."""
