"""The option that was best in our measurements, within the limits of the user.

Only options that helped in a measurement are advised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lipt.forecast.ways import GAINS, LABELS, Option
from lipt.report.numbers import format_budget, format_bytes, format_seconds
from lipt.selection.auto import gains_by_steps, worth_its_cost
from lipt.selection.measured import THETA_P_GAINS

#: The shares around 5, 10 and 20 %, where random images were trained from such a start.
START_SHARES = (0.04, 0.25)
#: Between 1 %, where theta_p's scores were worth their cost, and 5 %, where they were not.
THETA_P_PAYS_BELOW = 0.02

#: A subset with fewer images per class, on average, is not advised: we measured 45 or more.
LEAST_PER_CLASS = 10


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the user has; None: any amount."""

    storage_bytes: float | None = None
    """Room for the kept images."""
    transfer_bytes: float | None = None
    """Images that the whole run may read from the store."""
    gpu_hours: float | None = None
    """Of the whole run."""

    def hold(self, option: Option) -> bool:
        """Whether an option keeps to all limits."""
        pairs = (
            (option.stored_bytes, self.storage_bytes),
            (option.read_bytes, self.transfer_bytes),
            (option.gpu_hours, self.gpu_hours),
        )
        return all(limit is None or needed <= limit for needed, limit in pairs)


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The best option that fits, and why; None if nothing fits."""

    option: Option | None
    why: str


def advise(found: Sequence[Option], limits: Limits, classes: int) -> Advice:
    """The option to take; ten epochs on all images only where they were worth their cost.

    None without limits, and none that keeps fewer than `LEAST_PER_CLASS` images per class.
    """
    if limits == Limits():
        return Advice(option=None, why="give what you have: --storage GB, --transfer GB, --gpu-hours H")
    fits = [each for each in found if limits.hold(each)]
    if not fits:
        least = min(found, key=lambda each: (each.stored_bytes, each.read_bytes, each.gpu_hours))
        need = (
            f"{format_bytes(least.stored_bytes)} of storage, {format_bytes(least.read_bytes)} of transfer and "
            f"{format_seconds(3600 * least.gpu_hours)} of computing"
        )
        return Advice(option=None, why=f"nothing fits, the smallest option needs {need}")
    if whole := [each for each in fits if each.way == "all"]:
        return Advice(option=whole[0], why="within your limits")
    if drawn := [each for each in fits if each.way == "rs2"]:
        why = "all images fit; fresh draws need no scores, and in our measurements gained as much or more per FLOP"
        return Advice(option=max(drawn, key=lambda each: each.share), why=why)
    largest = max(each.share for each in fits)
    images = max(each.images for each in fits)
    if images < LEAST_PER_CLASS * classes:
        few = f"{format_budget(largest)} ({images:,} images for {classes:,} classes) is the largest share that fits"
        return Advice(
            option=None,
            why=f"{few}; fewer than {LEAST_PER_CLASS} images per class are too few: raise your limits, or train on all "
            "images",
        )
    ways = {each.way: each for each in fits if each.share == largest}
    passes = next(each.passes for each in ways.values())
    worth = worth_its_cost(largest, passes, ways)
    if "continued" in ways and START_SHARES[0] <= largest <= START_SHARES[1]:
        option, (measured,) = ways["continued"], GAINS["continued"]
        why = "the largest share that fits; at 10 % a start from the weights of ten epochs on all images gained most"
        if max(option.steps, measured) > 2 * min(option.steps, measured):
            why += f" (measured in {measured:,} steps; this one has {option.steps:,.0f})"
        other = LABELS[worth.scorer if worth else "random"]
        return Advice(option=option, why=f"{why}. If your training must start from random weights: {other}")
    if worth:
        option = ways[worth.scorer]
        why = f"the largest share that fits; this training sees each image {passes:,.0f} times, and {worth.told}"
        if option.steps < worth.steps:
            why += f" (measured in {worth.steps:,} steps; this one has {option.steps:,.0f})"
        return Advice(option=option, why=why)
    if largest >= THETA_P_PAYS_BELOW:
        why = "the largest share that fits; scores of theta_p were worth their cost at 1 %, and not from 5 % on"
        return Advice(option=ways["random"], why=why)
    if "theta_p" in ways:
        why = f"the largest share that fits; scores of theta_p gained {gains_by_steps(THETA_P_GAINS, largest)}"
        return Advice(option=ways["theta_p"], why=why)
    return Advice(option=ways["random"], why="the largest share that fits; scores of theta_p exceed your limits")
