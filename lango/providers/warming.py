"""What an SDK leaves to its first answer, done before it."""

from __future__ import annotations

from typing import Any, get_args


def build_models(kind: Any) -> int:
    """Have pydantic build the classes that a type is made of, and say how many there are.

    SDKs put that off until a class is first used. For the hundreds of classes that an event of
    a stream may be, it takes so long that the first answer comes noticeably late.
    """
    waiting, seen, models = [kind], set[Any](), 0
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        fields: Any = getattr(one, "model_fields", None)
        if fields:
            one.model_rebuild(raise_errors=False)
            models += 1
            waiting += [field.annotation for field in fields.values()]
        waiting += get_args(one)
    return models
