"""What agents did: the contexts of model calls and the timelines of turns."""
