"""Small files in JSON that pods leave for each other, and for their box, in the folder of a stage."""

from __future__ import annotations

from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from lipt.adapters.store import MissingObjectError, Store
from lipt.errors import IntegrityError, first_problem

T = TypeVar("T")


def read_note(store: Store, key: str, shape: TypeAdapter[T]) -> T | None:
    """What a file says; None if there is none.

    Raises:
        IntegrityError: it is no JSON, or of another shape.
    """
    try:
        return shape.validate_json(store.read(key, kind="other"))
    except MissingObjectError:
        return None
    except ValidationError as error:
        raise IntegrityError(
            f"{store.uri}/{key} is damaged: {first_problem(error.errors())}",
            "delete this file, then run again: the training continues from its checkpoint",
        ) from None
