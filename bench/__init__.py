"""Measures the store beside bare asyncpg and ADK's own service, in one run."""
