"""The settings of where the bytes of files are kept."""

from __future__ import annotations

import re
from typing import Final

from pydantic import Field, field_validator

from lango.config.section import Section

_URL: Final = re.compile(r"(s3|gs|az)://[^/?#@\s]+(/[^?#\s]*)?|file:///[^?#\s]+")


class FileStoreSettings(Section):
    """Where the bytes of files are kept: uploads, artifacts, and data moved out of messages."""

    objects: str | None = Field(
        default=None,
        description=(
            "An object store: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or "
            "file:///folder; null: the database."
        ),
    )

    @field_validator("objects")
    @classmethod
    def _is_known_kind(cls, url: str | None) -> str | None:
        if url is not None and not _URL.fullmatch(url):
            raise ValueError(
                "give s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or "
                "file:///folder; credentials belong in environment variables"
            )
        return url
