"""Rows of model providers: histories, streams and their servers."""
