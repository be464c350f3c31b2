"""Does in advance what an SDK defers to its first answer."""

from __future__ import annotations

from typing import Any, get_args


def build_models(kind: Any) -> int:
    """Make pydantic build the model classes within a type; returns how many there are.

    SDKs defer this until a class is first used. For the hundreds of classes of stream events it
    delays the first answer noticeably.
    """
    waiting, annotations, models = [kind], set[Any](), 0
    while waiting:
        annotation = waiting.pop()
        if annotation in annotations:
            continue
        annotations.add(annotation)
        fields: Any = getattr(annotation, "model_fields", None)
        if fields:
            annotation.model_rebuild(raise_errors=False)
            models += 1
            waiting += [field.annotation for field in fields.values()]
        waiting += get_args(annotation)
    return models
