"""Durable turns: their queue's clients, engines and workers."""
