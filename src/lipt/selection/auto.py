"""The default: algorithm and options by fraction."""

from __future__ import annotations

import math
from typing import Any

AUTO = "auto"
#: The remark of `auto` when it ignores the outputs that it was given.
UNUSED = (
    "auto: above 5 % of the data nothing that we measured beat a random subset, so this is one, and the outputs of "
    "the models were not used; name an algorithm, such as ccs, to use them"
)
#: The largest share of the data at which a selection has beaten class-balanced random in our measurements.
PAYS_UNTIL = 0.05
#: The same with scores along the trajectory of a training.
TRAJECTORY_PAYS_UNTIL = 0.2


def default_beta(fraction: float) -> float:
    """The share of hardest samples that `ccs` drops by default: .3 log10(.5 / fraction), within 0 and .5.

    .5 at 1 %, .3 at 5 %, .2 at 10 %, .1 at 20 %, 0 from 50 % on. A small subset gains little from hard samples, which
    need many similar ones to be learned (Sorscher et al. 2022). The tuned values of Zheng et al. 2023 for CIFAR-10 and
    -100 lie around this line (0 and .2 at 50 %, .3 and .5 at 10 %).
    """
    return min(0.5, max(0.0, 0.3 * math.log10(0.5 / fraction)))


def auto_rule(fraction: float, *, balanced: bool, epochs: int) -> tuple[str, dict[str, Any]]:
    """Up to 20 % `dual`, if there is a trajectory; up to 5 % `ccs`; above `stratified` (`random` if not balanced).

    Source: [below](#what-the-evidence-says). Time: O(n log n). Use: you want a default.

    Without a trajectory only `ccs` clearly beat random selection, at 1 % of CIFAR-10; from 10 % on nothing did. Scores
    along a trajectory were better than random up to 20 %, and `dual` was the best of them; see
    docs/reference/algorithms.md.

    Args:
        epochs: of the trajectory; 0 = there is none. `dual` needs two.
    """
    if epochs >= 2 and fraction <= TRAJECTORY_PAYS_UNTIL:
        return "dual", {}
    if fraction > PAYS_UNTIL:
        return ("stratified" if balanced else "random"), {}
    return "ccs", {"score": "el2n", "beta": default_beta(fraction) if fraction > 0 else None}
