"""ADK's own HTTP API, on durable turns."""
