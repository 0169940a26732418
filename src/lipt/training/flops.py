"""Count FLOPs. torch's `FlopCounterMode` does the same, but imports torch's compiler: 4 s of CPU time."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class CountFlops(TorchDispatchMode):
    """Inside the block, adds up the FLOPs of all operations by torch's formulas (1 multiply-add = 2 FLOPs)."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to skip it, torch would import it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if (formula := flop_registry.get(getattr(func, "_overloadpacket", func))) is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out
