"""The types of fields of the document."""

import math
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0.0)]
"""A mean of counts or of seconds: need not be whole."""
Key = Annotated[str, Field(pattern=r"^[\w.-]+(/[\w.-]+)*$")]
"""The key of an object in the workspace."""


def _is_iso(value: str) -> str:
    datetime.fromisoformat(value)
    return value


Moment = Annotated[str, AfterValidator(_is_iso)]
"""A time as ISO 8601."""


def _finite(value: object) -> object:
    """Non-finite numbers become None, so that a report can show a diverged loss."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Measured = Annotated[float | None, BeforeValidator(_finite)]

#: Frozen, without unknown fields, without NaN (JSON has none).
STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


def require(condition: bool, message: str) -> None:
    """Raise a ValueError unless `condition`: pydantic reports it as a wrong field."""
    if not condition:
        raise ValueError(message)
