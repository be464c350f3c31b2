"""HTTP itself: bodies, headers, streams, error answers, connection limits."""
