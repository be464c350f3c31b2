"""Sessions: append, load, list, rewind, fork and delete."""
