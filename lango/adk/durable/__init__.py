"""Turns that outlive their worker: resumed from the session, where every event is durable."""
