"""The base of the parts of `lango.yaml`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the file; a key it does not know is an error."""

    model_config = ConfigDict(extra="forbid", validate_default=True)
