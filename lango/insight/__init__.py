"""What agents did: contexts of model calls, timelines of turns, and usage."""
