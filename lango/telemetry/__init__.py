"""Telemetry: what a process reports about itself to its operators."""
