"""ADK's session service on lango's store, and the encoding of events."""
