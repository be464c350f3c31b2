"""One turn of a conversation, in process."""
