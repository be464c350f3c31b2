"""Engines and buses beside the database alone."""
