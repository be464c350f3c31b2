"""Rows that break the database: away, locked, or behind a network that forgets connections."""
