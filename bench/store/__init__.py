"""The session store beside bare asyncpg and ADK's own."""
