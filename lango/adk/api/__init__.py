"""ADK's HTTP API: its messages in, its events out."""
