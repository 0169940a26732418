"""What `auto` chooses, and what it says of its choice."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from selection_samples import make

from lipt.errors import UsageError
from lipt.selection import Candidates, Trajectory, requirements, resolve, select
from lipt.selection.auto import auto_reason


def test_auto_looks_at_a_model_only_where_that_pays() -> None:
    assert requirements("auto", 0.05) == requirements("ccs", 0.05)
    assert not requirements("auto", 0.0501).outputs
    chosen = {f: resolve("auto", f) for f in (0.01, 0.05, 0.1, 0.3)}
    assert chosen == {0.01: "ccs", 0.05: "ccs", 0.1: "stratified", 0.3: "stratified"}
    assert [resolve("auto", f, epochs=10) for f in (0.01, 0.3, 0.31)] == ["dual", "dual", "stratified"]
    assert resolve("auto", 0.3, balanced=False) == "random"
    assert resolve("grand", 0.3) == "grand"
    labels = make(40, 3).labels_N
    unscored = Candidates(labels_N=labels, num_classes=3)
    assert select("auto", unscored, fraction=0.3).algorithm == "stratified"
    with pytest.raises(UsageError, match="algorithm ccs, which auto takes at this share, needs a trajectory"):
        select("auto", unscored, fraction=0.05)


def test_auto_says_that_it_did_not_look() -> None:
    candidates = replace(make(40, 3), scores_N=None, forgetting_N=None)
    (remark,) = select("auto", candidates, fraction=0.1).remarks
    assert "the outputs of the models were not used" in remark
    assert not select("auto", candidates, fraction=0.05, balanced=False).remarks[:-1]
    assert not select("auto", Candidates(labels_N=candidates.labels_N, num_classes=3), fraction=0.1).remarks
    assert not select("stratified", candidates, fraction=0.1).remarks
    p_NT = torch.rand(40, 3, generator=torch.Generator().manual_seed(0))
    recorded = replace(candidates, trajectories=[Trajectory(p_NT=p_NT, error_NT=1 - p_NT, margin_NT=p_NT)])
    selection = select("auto", recorded, fraction=0.1)
    assert (selection.algorithm, selection.remarks) == ("dual", ())


@pytest.mark.parametrize(
    ("fraction", "epochs", "passes", "said"),
    [
        (
            0.01,
            0,
            0,
            "not on your images, its gain over class-balanced random was: +8.8 ± 3.4 points at 1 %",
        ),
        (
            0.01,
            0,
            0,
            "random was, in points at 1 %: in 500 steps +1.0 ± 1.1 on Fashion-MNIST, +1.2 ± 0.8 on MNIST, ",
        ),
        (
            0.12,
            10,
            0,
            "random was, in points at 10 %: in 2,000 steps +0.5 ± 0.6 on Fashion-MNIST, +0.6 ± 0.1 on MNIST, ",
        ),
        (0.2, 10, 0, "at 20 %: in 2,000 steps +0.9 ± 0.9 on Fashion-MNIST, −3.8 ± 4.9 on traffic signs"),
        (0.04, 0, 0, "+2.6 ± 0.9 points at 5 % in 500 steps; +1.2 ± 1.4 points at 5 % in 2,000 steps"),
        (0.1, 0, 0, "a random subset, because above 5 % of the data scores without a trajectory gained"),
        (0.12, 10, 0, "+4.2 ± 0.5 points at 10 % in 500 steps; +2.8 ± 0.8 points at 10 % in 2,000 steps"),
        (0.01, 10, 0, "+9.2 ± 2.9 points at 1 % in 500 steps; +9.7 ± 1.9 points at 1 % in 2,000 steps"),
        (0.1, 10, 24, "+1.2 ± 1.8 points at 10 % in 8,000 steps"),
        (
            0.1,
            10,
            25,
            "takes dyn_unc: this training sees each image 25 times. In our own measurements on CIFAR-10, not on "
            "your images: in such a training, 2,000 steps on 10 %",
        ),
        (
            0.1,
            10,
            25,
            "dyn_unc gained +2.3 ± 0.8 points over dual along a trajectory, and +5.1 ± 1.3 over class-balanced random",
        ),
        (0.05, 10, 99, "takes ccs: this training sees each image 99 times"),
        (0.05, 10, 100, "takes dyn_unc: this training sees each image 100 times"),
        (
            0.05,
            10,
            50,
            "takes ccs: this training sees each image 50 times. In our own measurements on CIFAR-10, not on "
            "your images: in such a training, 2,000 steps on 5 %",
        ),
        (
            0.05,
            0,
            100,
            "sees each image 100 times. In our own measurements on CIFAR-10, not on your images: "
            "in such a training scores of ten epochs of the network at half its width",
        ),
        (
            0.1,
            0,
            100,
            "epochs of the network itself were worth more than their cost: +3.2 ± 2.0 points at 10 %",
        ),
        (
            0.1,
            0,
            25,
            "little or nothing over one in our measurements on CIFAR-10. "
            "Scores along a trajectory gained more there, and cost more",
        ),
        (0.05, 0, 99, "+1.2 ± 1.4 points at 5 % in 2,000 steps; +1.3 ± 1.5 points at 5 % in 8,000 steps"),
        (0.01, 0, 99, "+8.8 ± 3.4 points at 1 % in 500 steps; +8.3 ± 2.1 points at 1 % in 2,000 steps"),
        (0.5, 10, 0, "a random subset, because we did not measure scores along a trajectory above 30 % of the data"),
    ],
)
def test_auto_says_what_its_choice_gained(fraction: float, epochs: int, passes: float, said: str) -> None:
    reason = auto_reason(fraction, balanced=True, epochs=epochs, passes=passes, steps=8000)
    assert said in reason
    assert reason.index("our ") < reason.index(" ± ") if " ± " in reason else True  # no number without whose it is
    worth = not epochs and passes >= 100
    assert ("more than their cost" in reason) == worth
    assert ("half its width" in reason) == (worth and fraction == 0.05)
    assert ("over dual along a trajectory" in reason) == (epochs > 0 and passes >= 25)
    for changed in ({"proxy": False}, {"steps": 1999}):
        known = {"passes": passes, "steps": 8000} | changed
        assert "half its width" not in auto_reason(fraction, balanced=True, epochs=epochs, **known)


def test_auto_says_that_a_training_has_fewer_steps_than_the_measured_one() -> None:
    said = auto_reason(0.05, balanced=True, epochs=10, passes=100, steps=300)
    assert "and +10.5 ± 2.6 over class-balanced random. On other data the gain over random was, in points at " in said
    assert "−10.4 ± 12.8 on traffic signs; in 8,000 steps −0.2 ± 0.4 on traffic signs. At 10 % of " in said
    assert said.endswith(" traffic signs a race (`select.race`) did not choose it. This training has 300 steps")
    assert "This training has" not in auto_reason(0.05, balanced=True, epochs=10, passes=222, steps=8000)
