"""The default: algorithm and options by fraction, and why."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lipt.selection.measured import (
    CONTINUED_GAINS,
    DUAL_GAINS,
    ELSEWHERE_GAINS,
    MEASURED_EPOCHS,
    OTHER_KIND_GAINS,
    OTHER_NETWORK_GAINS,
    PAYS_UNTIL,
    RULES_BY_PASSES,
    THETA_P_GAINS,
    TRAJECTORY_PAYS_UNTIL,
    WORTH,
    RuleByPasses,
    Worth,
)

if TYPE_CHECKING:
    from lipt.selection.inputs.candidates import Candidates

AUTO = "auto"
#: Leads every number that is not of the user's images.
_OURS = "In our own measurements on CIFAR-10, not on your images"


def worth_its_cost(fraction: float, passes: float, scorers: Collection[str]) -> Worth | None:
    """The first of `WORTH` that holds for one of these scorers; None: there is none.

    Args:
        fraction: share that is kept.
        passes: how often the training sees each kept image.
    """
    found = (each for each in WORTH if each.scorer in scorers and _holds(each, fraction, passes))
    return next(found, None)


def rule_by_passes(fraction: float, passes: float, epochs: int) -> RuleByPasses | None:
    """The first of `RULES_BY_PASSES` that holds, which `auto` takes in place of `dual`; None: there is none.

    Args:
        fraction: share that is kept.
        passes: how often the training sees each kept image.
        epochs: of the trajectory.
    """
    found = (rule for rule in RULES_BY_PASSES if epochs >= MEASURED_EPOCHS and _holds(rule, fraction, passes))
    return next(found, None)


def _holds(measured: Worth | RuleByPasses, fraction: float, passes: float) -> bool:
    """Whether a measurement is followed at this share and this number of passes."""
    shares, seen = measured.shares, measured.passes
    return shares[0] <= fraction <= shares[1] and seen[0] <= passes <= seen[1]


def default_beta(fraction: float, wrong: float) -> float:
    """The share of hardest samples that `ccs` drops by default: the smaller of two shares.

    One is .3 log10(.5 / fraction), within 0 and .5: .5 at 1 %, .3 at 5 %, .2 at 10 %, .1 at 20 %, 0 from 50 % on. The
    other is the share that a barely trained model gets wrong, but at least .1.

    A small subset gains little from hard samples, which need many similar ones to be learned (Sorscher et al. 2022).
    How many are too hard depends on the data: at 1 % half was right for CIFAR-10, where theta_p is wrong for half, and
    too much for Fashion-MNIST, where it is wrong for a fifth, and for MNIST: docs/results/other-data.md. The values
    that Zheng et al. 2023 tuned for CIFAR-10 and -100 are higher (0 and .2 at 50 %, .3 and .5 at 10 %): for AUM, and
    for a cut over all classes together.

    Args:
        wrong: share of the candidates for which theta_p, or the first epoch of a trajectory, predicts another class.
    """
    return min(max(0.1, wrong), 0.5, max(0.0, 0.3 * math.log10(0.5 / fraction)))


def auto_rule(fraction: float, *, balanced: bool, epochs: int) -> tuple[str, dict[str, Any]]:
    """Up to 30 % `dual` if there is a trajectory (in a run, by the passes, `dyn_unc` or `ccs`); else up to 5 %
    `ccs`, above `stratified` (`random` if not balanced).

    Source: our measurements. Time: O(n log n). Use: you want a default.

    Without a trajectory `ccs` gained eight points over random at 1 % of CIFAR-10, and at most two from 10 % on. `dual`
    along a trajectory beat random up to 20 % in 500 steps and up to 30 % in 2,000, and was never measurably worse; see
    docs/reference/algorithms.md.

    Args:
        epochs: of the trajectory; 0 = there is none. `dual` needs two.
    """
    if epochs >= 2 and fraction <= TRAJECTORY_PAYS_UNTIL:
        return "dual", {}
    if fraction > PAYS_UNTIL:
        return ("stratified" if balanced else "random"), {}
    return "ccs", {}


def unused_inputs(candidates: Candidates, *, used: bool) -> list[str]:
    """The remark of `auto` about inputs that it was given and did not read, if there are any.

    Args:
        used: whether it read the outputs or, in place of them, the trajectories.
    """
    given = {
        "the outputs of the models": (candidates.num_models and not used, "ccs"),
        "the trajectories": (candidates.trajectories and not used, "ccs"),
        "your scores": (candidates.scores_N is not None, "scores"),
        "the forgetting counts": (candidates.forgetting_N is not None, "forgetting"),
    }
    ignored = {what: algorithm for what, (there, algorithm) in given.items() if there}
    if not ignored:
        return []
    why = ""
    if not used:
        why = f"this is a random subset, because {_why_random(epochs_of(candidates))}; "
    remedy = f"name an algorithm, such as {next(iter(ignored.values()))}, to use them"
    return [f"auto: {why}{' and '.join(ignored)} were not used; {remedy}"]


def epochs_of(candidates: Candidates) -> int:
    """The epochs that all trajectories have; 0 = there is no trajectory."""
    return min((each.epochs for each in candidates.trajectories), default=0)


def auto_reason(fraction: float, *, balanced: bool, epochs: int, passes: float, steps: int, proxy: bool = True) -> str:
    """Why `auto` decides so, with the measured gain, and what gained more; arguments as `auto_rule`.

    Args:
        passes: how often the training sees each kept image.
        steps: of the training.
        proxy: whether the network has a narrower form.
    """
    name = auto_rule(fraction, balanced=balanced, epochs=epochs)[0]
    if name == "dual":
        if rule := rule_by_passes(fraction, passes, epochs):
            elsewhere = ""
            if rule.algorithm == "dyn_unc":
                elsewhere = (
                    f"{_elsewhere(rule.algorithm, fraction)}. At 10 % of Fashion-MNIST and of the traffic signs a race "
                    "(`select.race`) did not choose it"
                )
            own = f". This training has {steps:,} steps" if steps < rule.steps else ""
            return (
                f"auto takes {rule.algorithm}: this training sees each image {passes:,.0f} times. {_OURS}: in such a "
                f"training, {rule.steps:,} steps on {100 * rule.share:g} %, {rule.algorithm} gained {rule.over_dual} "
                f"points over dual along a trajectory, and {rule.gain} over class-balanced random{elsewhere}{own}"
            )
        shorter = ". That was along ten epochs: at 10 % in 500 steps two gained +1.8 ± 0.7, ten +4.2 ± 0.6"
        return (
            f"auto takes dual up to 30 % of the data if there is a trajectory. {_OURS}, its gain over class-balanced "
            f"random was: {gains_by_steps(DUAL_GAINS, fraction)}{_elsewhere(name, fraction)}"
            f"{shorter if epochs < MEASURED_EPOCHS else ''}"
        )
    better = ""
    worth = worth_its_cost(fraction, passes, ("proxy", "trajectory") if proxy else ("trajectory",))
    if worth and not epochs and steps >= worth.steps:
        better = (
            f". This training sees each image {passes:,.0f} times. {_OURS}: {worth.told}. At 10 % "
            "a start from the weights of such epochs gained more, with random images. The settings: `lipt plan CONFIG "
            "--advise --storage GB`"
        )
    if name == "ccs":
        return (
            f"auto takes ccs up to 5 % of the data. {_OURS}, its gain over class-balanced random was: "
            f"{gains_by_steps(THETA_P_GAINS, fraction)}{_elsewhere(name, fraction)}{better}"
        )
    trained = (
        ""
        if epochs >= 2
        else ". Scores along a trajectory gained more there, and cost more: `lipt plan CONFIG --advise`"
    )
    return f"auto takes a random subset, because {_why_random(epochs)}{better or trained}"


def _why_random(epochs: int) -> str:
    """Why `auto` selects at random; `epochs` as of `auto_rule`."""
    if epochs >= 2:
        return f"we did not measure scores along a trajectory above {100 * TRAJECTORY_PAYS_UNTIL:g} % of the data"
    return (
        f"above {100 * PAYS_UNTIL:g} % of the data scores without a trajectory gained little or nothing over one in "
        "our measurements on CIFAR-10"
    )


def continued_reason(algorithm: str) -> str:
    """What `auto` says of its choice if the training starts from trained weights: only these gains hold for it."""
    told = (
        f"{', '.join(f'{gain} points at {100 * share:g} %' for share, gain in gains.items())} ({choice})"
        for choice, gains in CONTINUED_GAINS.items()
    )
    chosen = "a random subset" if algorithm in ("random", "stratified") else algorithm
    return (
        f"auto takes {chosen} for a training that starts from trained weights. {_OURS}, the gain over class-balanced "
        f"random from such a start was, in 2,000 steps: {'; '.join(told)}"
    )


def other_network_reason() -> str:
    """Why `auto` takes `ccs` along the trajectory of another network than the trained one, with the measured gains."""
    gains = ", ".join(f"{gain} from {network}" for network, gain in OTHER_NETWORK_GAINS.items())
    others = ", ".join(f"{gain} in {network}" for network, gain in OTHER_KIND_GAINS.items())
    return (
        f"auto takes ccs along the trajectory of another network than the trained one. {_OURS}, its gain over "
        f"class-balanced random was, in points at 10 %: {gains}; at 1 %, scored by a ResNet-18: {others}"
    )


def gains_by_steps(gains: Mapping[int, Mapping[float, str]], fraction: float) -> str:
    """The gains at the nearest share, for each number of steps in which it was measured."""
    share = _nearest_of({share for measured in gains.values() for share in measured}, fraction)
    told = {steps: measured[share] for steps, measured in gains.items() if share in measured}
    return "; ".join(f"{gain} points at {100 * share:g} % in {steps:,} steps" for steps, gain in told.items())


def _elsewhere(algorithm: str, fraction: float) -> str:
    """What the algorithm gained on other data, at the nearest share."""
    share = _nearest_of(ELSEWHERE_GAINS[algorithm], fraction)
    told = "; ".join(
        f"in {steps:,} steps {', '.join(f'{gain} on {data}' for data, gain in gains.items())}"
        for steps, gains in ELSEWHERE_GAINS[algorithm][share].items()
    )
    return f". On other data the gain over random was, in points at {100 * share:g} %: {told}"


def _nearest_of(shares: Iterable[float], fraction: float) -> float:
    """The share that is nearest on a logarithmic scale."""
    return min(shares, key=lambda each: abs(math.log(each / fraction)))
