"""Types of values that Kubernetes would refuse only when a pod is created."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

#: The name of an object: lower case, digits, `-` and `.`.
ObjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253)]

_QUANTITY = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]{1,2}))?", re.ASCII)
_FACTORS = {name: 10.0 ** (3 * power) for power, name in enumerate("num kMGTPE", start=-3) if name != " "} | {
    f"{name}i": 1024.0**power for power, name in enumerate("KMGTPE", start=1)
}


def amount(quantity: str) -> float:
    """The number that a quantity of Kubernetes means: `500m` is 0.5, `2Gi` is 2 * 1024**3.

    Raises:
        ValueError: it is none.
    """
    if not (found := _QUANTITY.fullmatch(quantity)):
        raise ValueError(f"{quantity!r} is no quantity")
    number, unit, exponent = found.groups()
    return float(number) * _FACTORS.get(unit, 10.0 ** int(exponent or 0))


def _checked(quantity: str) -> str:
    if amount(quantity) == 0:
        raise ValueError("0 is no request")
    return quantity


#: CPUs or bytes, such as `500m` or `2Gi`.
Quantity = Annotated[str, AfterValidator(_checked)]
