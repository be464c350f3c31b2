"""Every access to a private part of google.adk, one file per noun.

Each file has a canary of the same name in `tests/adk/compat/`, which fails when ADK changes the
part. Nothing is imported here: an import of one file must not fail because of another.
"""
