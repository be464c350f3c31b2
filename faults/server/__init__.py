"""Rows about a server that clients attack."""
