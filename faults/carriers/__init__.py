"""Engines and buses that die while a row runs."""
