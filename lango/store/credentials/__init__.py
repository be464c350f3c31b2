"""Credentials of users, encrypted."""
