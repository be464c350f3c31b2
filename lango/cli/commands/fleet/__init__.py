"""Commands that show what all processes of a database do."""
