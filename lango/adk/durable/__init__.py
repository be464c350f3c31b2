"""Turns that survive their worker: resumed from the session, where every event is durable."""
