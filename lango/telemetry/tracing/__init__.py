"""Traces by OpenTelemetry: the only package that imports it, and only while traces are on."""
