"""Rows about turns that are resumed."""
