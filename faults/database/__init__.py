"""Rows that break the database: unavailable, locked, or behind a network that drops connections."""
