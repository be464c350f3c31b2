"""The turn queue beside a model of it."""
