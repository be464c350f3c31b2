"""Rows and tools of turns on worker processes."""
