"""The turn queue compared with a model of it."""
