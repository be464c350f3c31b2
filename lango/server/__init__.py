"""The HTTP API of sessions and turns. Any server can answer any request."""
