"""Messages: the types, history, call/response pairs and streams."""
