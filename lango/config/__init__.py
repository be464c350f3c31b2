"""The settings file `lango.yaml`: its keys, the sources of values, and error messages."""
