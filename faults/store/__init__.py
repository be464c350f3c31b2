"""Trials of what the store keeps, and of what it must not keep."""
