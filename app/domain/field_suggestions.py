"""Suggestions for an unknown field: the similar field of the object in which it was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

MAX_LENGTH: Final = 64
"""The longest name that is compared. No field is longer, and the time of a comparison grows with the length."""
MIN_SIMILARITY: Final = 0.7


def suggest_field(model: type[BaseModel], location: Sequence[int | str]) -> str | None:
    """Return the field that a misspelt one may mean; None if no field is similar. `location` is that of the misspelt field."""
    name, owner = str(location[-1]), _model_at(model, location[:-1])
    if owner is None or len(name) > MAX_LENGTH:
        return None
    fields = list(owner.model_fields)
    if similar := get_close_matches(name, fields, 1, MIN_SIMILARITY):
        return similar[0]
    return next((field for field in fields if name in field.split("_")), None)


def _model_at(model: type[BaseModel], location: Sequence[int | str]) -> type[BaseModel] | None:
    """Return the model of the object at a location; None if it is not a model."""
    annotation: Any = model
    for part in location:
        annotation = next(_parts_of(annotation, part), None)
    return next(_models(annotation), None)


def _parts_of(annotation: Any, part: int | str) -> Iterator[Any]:
    """Yield the annotations that a part of a value may have."""
    for plain in _alternatives(annotation):
        if isinstance(plain, type) and issubclass(plain, BaseModel) and part in plain.model_fields:
            yield plain.model_fields[str(part)].annotation
        elif _is_kind(plain, Mapping):
            yield get_args(plain)[1]
        elif _is_kind(plain, Sequence):
            yield get_args(plain)[0]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    for plain in _alternatives(annotation):
        if isinstance(plain, type) and issubclass(plain, BaseModel):
            yield plain


def _alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union, each without its annotations."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from _alternatives(member)
    else:
        yield annotation


def _is_kind(annotation: Any, kind: type) -> bool:
    origin = get_origin(annotation)
    return isinstance(origin, type) and issubclass(origin, kind)
