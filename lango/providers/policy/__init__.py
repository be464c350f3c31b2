"""Fault handling for all providers: retries, timeouts, throttling."""
