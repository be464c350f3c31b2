"""Turns: submit, claim and close; their log, tool ledger and workers."""
