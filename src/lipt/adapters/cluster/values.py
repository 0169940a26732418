"""Types of values that Kubernetes would refuse only when a pod is created."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, StringConstraints

#: The name of an object: lower case, digits, `-` and `.`.
ObjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253)]

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
#: The name of an image: `[HOST[:PORT]/]NAME[:TAG][@DIGEST]`. Only the host may have capital letters.
ImageName = Annotated[
    str,
    StringConstraints(
        pattern=rf"^(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/)?{_PART}(?:/{_PART})*"
        r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
        r"(?:@sha(?:256:[0-9a-f]{64}|384:[0-9a-f]{96}|512:[0-9a-f]{128}))?$"
    ),
]

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


#: No process of lipt starts with less: `8` is eight bytes.
_LEAST_BYTES = 64 * 1024**2
#: More CPUs than a machine has: `2Gi` CPUs are meant as memory.
_MOST_CPUS = 10_000


def _cpus(quantity: str) -> str:
    if not 0 < amount(quantity) <= _MOST_CPUS:
        raise ValueError("not a number of CPUs")
    return quantity


def _bytes(quantity: str) -> str:
    if amount(quantity) < _LEAST_BYTES:
        raise ValueError("less than 64Mi")
    return quantity


#: CPUs, such as `2` or `500m`.
Cpus = Annotated[str, AfterValidator(_cpus)]
#: Bytes, such as `2Gi`.
Bytes = Annotated[str, AfterValidator(_bytes)]


def _toleration(given: dict[str, Any]) -> dict[str, Any]:
    known = {"key", "operator", "value", "effect", "tolerationSeconds"}
    effects = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
    if given.keys() - known or (given.get("operator") or "Equal") not in ("Equal", "Exists"):
        raise ValueError("no toleration")
    if (given.get("effect") or "") not in effects:
        raise ValueError("no effect of a taint")
    return given


#: As in Kubernetes. A misspelt `key` is refused: `Exists` without one tolerates every taint.
Toleration = Annotated[dict[str, Any], AfterValidator(_toleration)]
