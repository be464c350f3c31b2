"""The built-in tools: files, commands in a sandbox, pages and the time."""
