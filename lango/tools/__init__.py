"""Tools: the interface, functions as tools, and the built-in ones."""
