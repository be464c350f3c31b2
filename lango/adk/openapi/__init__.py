"""Tools of web APIs that an OpenAPI document describes."""
