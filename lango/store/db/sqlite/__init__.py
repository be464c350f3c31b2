"""SQLite: its engine, its driver, and how commits get to the disk."""
