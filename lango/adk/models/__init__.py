"""ADK's model class for any provider: requests, responses and their conversion."""
