"""Artifacts and files of sessions."""
