"""Doing things: what tools are, how functions become tools, and the built-in ones."""
