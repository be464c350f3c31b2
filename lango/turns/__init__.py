"""Turns that outlive processes."""
