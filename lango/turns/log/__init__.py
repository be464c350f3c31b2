"""The log of a turn: written by its worker, followed by its readers."""
