"""Engines and buses that are killed and restarted while a row runs."""
