"""Tool calls of a durable turn: their ids, those still open, and late results."""
