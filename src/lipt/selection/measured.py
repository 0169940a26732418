"""The measurements that `auto` follows: docs/results has their tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

#: Above this share, scores without a trajectory gained little or nothing over class-balanced random.
PAYS_UNTIL = 0.05
#: The largest share that was measured with scores along the trajectory of a training.
TRAJECTORY_PAYS_UNTIL = 0.3
#: Points that `ccs` on the scores of theta_p gained over class-balanced random on CIFAR-10, by steps and share.
THETA_P_GAINS: Mapping[int, Mapping[float, str]] = {
    500: {0.01: "+8.8 ± 3.4", 0.05: "+2.6 ± 0.9", 0.1: "+1.6 ± 1.3", 0.2: "+1.5 ± 1.5", 0.3: "+1.3 ± 0.8"},
    2000: {0.01: "+8.3 ± 2.1", 0.05: "+1.2 ± 1.4", 0.1: "−0.3 ± 0.6", 0.2: "−0.7 ± 1.5", 0.3: "−0.9 ± 1.9"},
    8000: {0.01: "+8.7 ± 1.4", 0.05: "+1.3 ± 1.5", 0.1: "−4.4 ± 1.2", 0.2: "−4.6 ± 1.3", 0.3: "−4.0 ± 2.0"},
}
#: Points that `dual` on ten epochs of the trained network gained over class-balanced random, by steps and share.
DUAL_GAINS: Mapping[int, Mapping[float, str]] = {
    500: {0.01: "+9.2 ± 2.9", 0.05: "+4.5 ± 0.3", 0.1: "+4.2 ± 0.5", 0.2: "+2.9 ± 2.3", 0.3: "+0.1 ± 1.3"},
    2000: {0.01: "+9.7 ± 1.9", 0.05: "+2.7 ± 1.0", 0.1: "+2.8 ± 0.8", 0.2: "+4.8 ± 1.2", 0.3: "+4.0 ± 1.6"},
    8000: {0.01: "+9.8 ± 1.9", 0.05: "+6.1 ± 1.0", 0.1: "+1.2 ± 1.8", 0.2: "−0.8 ± 1.9", 0.3: "+0.0 ± 0.4"},
}
#: Points over class-balanced random on other data: algorithm -> share -> steps -> data. `ccs` on the scores of theta_p;
#: the others along ten epochs.
ELSEWHERE_GAINS: Mapping[str, Mapping[float, Mapping[int, Mapping[str, str]]]] = {
    "ccs": {
        0.01: {
            500: {
                "Fashion-MNIST": "+1.0 ± 1.1",
                "MNIST": "+1.2 ± 0.8",
                "scenes": "+8.2 ± 3.0",
                "traffic signs": "+3.1 ± 4.9",
            }
        },
        0.1: {500: {"Fashion-MNIST": "+0.7 ± 0.9", "traffic signs": "−2.3 ± 7.5"}},
    },
    "dual": {
        0.01: {
            500: {
                "Fashion-MNIST": "+0.6 ± 1.2",
                "MNIST": "+0.4 ± 1.0",
                "scenes": "+8.7 ± 3.7",
                "traffic signs": "+3.1 ± 3.9",
            }
        },
        0.1: {
            2000: {
                "Fashion-MNIST": "+0.5 ± 0.6",
                "MNIST": "+0.6 ± 0.1",
                "scenes": "+4.0 ± 1.1",
                "traffic signs": "−3.0 ± 3.1",
            }
        },
        0.2: {2000: {"Fashion-MNIST": "+0.9 ± 0.9", "traffic signs": "−3.8 ± 4.9"}},
    },
    "dyn_unc": {
        0.1: {
            2000: {
                "Fashion-MNIST": "+1.0 ± 0.9",
                "MNIST": "+0.5 ± 0.1",
                "scenes": "+6.1 ± 1.7",
                "traffic signs": "−10.4 ± 12.8",
            },
            8000: {"traffic signs": "−0.2 ± 0.4"},
        },
        0.2: {2000: {"Fashion-MNIST": "+0.7 ± 1.0", "traffic signs": "−2.7 ± 5.7"}},
    },
}

#: Of the trajectories along which the rules below were measured. A shorter one gained less.
MEASURED_EPOCHS = 10


class RuleByPasses(NamedTuple):
    """A rule, and for which shares and passes it gained more than `dual`.

    Both rules read the trajectory of the trained network, of `MEASURED_EPOCHS` epochs.
    """

    algorithm: str
    share: float
    """That was measured."""
    shares: tuple[float, float]
    """Around it, where `auto` follows the measurement."""
    passes: tuple[float, float]
    """`auto` takes the rule if the training sees each kept image this often: at least, at most."""
    steps: int
    """Of the training in which the gains were measured."""
    over_dual: str
    """Points over `dual`."""
    gain: str
    """Points over class-balanced random."""


#: The passes at which the gains were measured: 222, 113, 28, 56, 57, 2.4 and 9.5. The first that holds counts.
RULES_BY_PASSES = (
    RuleByPasses("dyn_unc", 0.05, (0.04, 0.07), (100, math.inf), 8000, over_dual="+4.4 ± 1.9", gain="+10.5 ± 2.6"),
    RuleByPasses("dyn_unc", 0.1, (0.07, 0.14), (100, math.inf), 8000, over_dual="+3.8 ± 0.7", gain="+5.0 ± 1.9"),
    RuleByPasses("dyn_unc", 0.1, (0.07, 0.14), (25, math.inf), 2000, over_dual="+2.3 ± 0.8", gain="+5.1 ± 1.3"),
    RuleByPasses("ccs", 0.05, (0.03, 0.07), (50, math.inf), 2000, over_dual="+2.1 ± 1.1", gain="+4.8 ± 1.0"),
    RuleByPasses("dyn_unc", 0.2, (0.14, 0.25), (50, math.inf), 8000, over_dual="+1.1 ± 0.8", gain="+0.3 ± 1.3"),
    RuleByPasses("dyn_unc", 0.3, (0.25, 0.3), (2, 5), 500, over_dual="+1.4 ± 1.0", gain="+1.5 ± 0.9"),
    RuleByPasses("dyn_unc", 0.3, (0.25, 0.3), (5, 20), 2000, over_dual="+2.1 ± 1.8", gain="+6.1 ± 2.1"),
)


class Worth(NamedTuple):
    """A choice that gained more than a class-balanced random subset which got its FLOPs as more steps."""

    scorer: Literal["proxy", "trajectory"]
    """Ten epochs of the network at half its width, or of the network itself; the algorithm is that of `auto`."""
    share: float
    """That was measured."""
    shares: tuple[float, float]
    """Around it, where the measurement is followed."""
    passes: tuple[float, float]
    """It holds if the training sees each kept image this often: at least, at most."""
    steps: int
    """Of the training in which the gain was measured."""
    gain: str
    """Points over the random subset with the same FLOPs."""

    @property
    def told(self) -> str:
        """In words, after how often the training sees each kept image."""
        network = "at half its width" if self.scorer == "proxy" else "itself"
        return (
            f"in such a training scores of ten epochs of the network {network} were worth more than their cost: "
            f"{self.gain} points at {100 * self.share:g} %"
        )


#: Measured at 111, 113 and 222 passes. The first that holds counts. At 10 % half the width was not shown to pay.
WORTH = (
    Worth("proxy", 0.05, (0.03, 0.07), (100, math.inf), 4000, gain="+6.6 ± 3.6"),
    Worth("trajectory", 0.1, (0.07, 0.14), (100, math.inf), 8000, gain="+3.2 ± 2.0"),
    Worth("trajectory", 0.05, (0.03, 0.07), (100, math.inf), 8000, gain="+8.7 ± 2.4"),
)
#: Points that a choice gained over class-balanced random in 2,000 steps that started from the weights of the model that
#: scored, by choice and share.
CONTINUED_GAINS: Mapping[str, Mapping[float, str]] = {
    "ccs from theta_p": {0.01: "+5.7 ± 2.2"},
    "dyn_unc from the network of the trajectory": {0.05: "+0.3 ± 0.4", 0.1: "−1.5 ± 0.1", 0.2: "−2.2 ± 0.3"},
}
#: The shares where `auto` follows those of dyn_unc: the larger the share, the more a choice loses.
CONTINUED_SHARES = (0.03, TRAJECTORY_PAYS_UNTIL)
#: Points that `ccs` gained over class-balanced random along the trajectory of another network than the trained one.
OTHER_NETWORK_GAINS: Mapping[str, str] = {
    "a network of half the width": "+3.1 ± 0.5",
    "half the usual width of 64": "+3.9 ± 3.7",
    "ten disjoint models": "+1.25 ± 1.17",
    "half the width after two epochs in place of ten": "−1.1 ± 1.0",
    "half the width on images of 8 x 8 pixels": "−2.1 ± 1.1",
}
#: The same at 1 %, in networks of another kind along the trajectory of a ResNet-18.
OTHER_KIND_GAINS: Mapping[str, str] = {
    "a WRN-28": "+8.5 ± 1.3",
    "a vision transformer": "+5.5 ± 1.1",
    "a plain ConvNet": "+4.5 ± 0.4",
}
