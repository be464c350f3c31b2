"""Buses: what carries wake-ups and streamed text between processes."""
