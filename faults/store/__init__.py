"""Rows about the data that the store must keep, and must not keep."""
