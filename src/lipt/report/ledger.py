"""The ledger as plain data: the measured cost of each stage."""

from typing import Any, Self

from pydantic import BaseModel

from lipt.ledger import Cost
from lipt.report.fields import STRICT, Amount, Count

#: Kinds of bytes.
KINDS = ("data", "model", "other")
#: Fields of a cost that a row has under the same names.
_SAME = ("wall_s", "ended", "flops", "peak_bytes", "requests", "machine")


class LedgerRow(BaseModel):
    """The measured cost of one stage, or of one worker of it. Bytes are counted at the store.

    Rows can be summed: a stage that fans out has one row per worker and no other row for the same work.
    """

    model_config = STRICT

    ref: str = ""
    """Reference of the artifact in the workspace."""
    stage: str
    """Name of the stage."""
    worker: Count | None = None
    """Number of the worker; None if the stage has one."""
    seed: int | None = None
    """That of the run, if there are several; None for work of all."""
    earlier: bool = False
    """An earlier run finished it; this one reused it. Only known if one process did the whole run."""
    wall_s: Amount = 0.0
    """Seconds."""
    ended: Amount = 0.0
    """Seconds since 1970; 0 if unknown."""
    flops: Count = 0
    """Computed from the layers that ran."""
    peak_bytes: Count = 0
    """Highest memory of the process, or of the GPU if it used one."""
    data_read: Count = 0
    """Bytes of images read from the store."""
    data_written: Count = 0
    """Bytes of images written to the store."""
    model_read: Count = 0
    """Bytes of weights read from the store."""
    model_written: Count = 0
    """Bytes of weights written to the store."""
    other_read: Count = 0
    """Other bytes read from the store."""
    other_written: Count = 0
    """Other bytes written to the store."""
    requests: Count = 0
    """To the store."""
    steps: Count = 0
    """Optimiser steps; 0 if the stage trains nothing."""
    images: Count = 0
    """Images that it trained on; 0 if it trains nothing."""
    reselection_flops: Count = 0
    """The part of `flops` in which a training selected again."""
    machine: str = ""
    """The device and the threads that did it, with the number of processes that shared it; empty if unknown."""

    @classmethod
    def of(cls, cost: Cost, **others: Any) -> Self:
        """The row of a cost; the inverse of `cost`."""
        traffic = {f"{kind}_{verb}": getattr(cost, verb).get(kind, 0) for kind in KINDS for verb in ("read", "written")}
        return cls(**{name: getattr(cost, name) for name in _SAME}, **traffic, **others)

    @property
    def cost(self) -> Cost:
        """The same as a cost, which can be summed."""
        return Cost(
            **{name: getattr(self, name) for name in _SAME},
            read={kind: getattr(self, f"{kind}_read") for kind in KINDS},
            written={kind: getattr(self, f"{kind}_written") for kind in KINDS},
        )
