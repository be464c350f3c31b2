"""Metrics for Prometheus: measured where things happen, and read at `/metrics`."""
