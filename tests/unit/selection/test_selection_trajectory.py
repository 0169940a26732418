"""Scores along a trajectory, against the textbook definitions, sample by sample."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest
import torch
from selection_samples import make, peak_bytes, same
from torch import Tensor

from lipt.errors import LiptError, RunError, UsageError
from lipt.selection import Candidates, Trajectory, requirements, resolve, select
from lipt.selection.algorithms.ranking import difficulty
from lipt.selection.algorithms.sampling import _dual_scores
from lipt.selection.numerics import blocks

N, EPOCHS = 60, 7


def trajectory(seed: int = 0, n: int = N, epochs: int = EPOCHS) -> Trajectory:
    g = torch.Generator().manual_seed(seed)
    p_NT = torch.rand(n, epochs, generator=g, dtype=torch.float64)
    return Trajectory(
        p_NT=p_NT,
        error_NT=1.2 * (1 - p_NT),
        margin_NT=torch.randn(n, epochs, generator=g, dtype=torch.float64),
    )


def candidates(*trajectories: Trajectory) -> Candidates:
    labels_N = torch.arange(N) % 3
    return Candidates(labels_N=labels_N, num_classes=3, trajectories=trajectories or (trajectory(),))


def test_forgetting_events() -> None:
    """Sample 0: right, wrong, right, wrong = 2 events; 1: always right; 2: never right = inf; 3: right at last = 0; 4:
    equal logits are not right = 1."""
    margin_NT = torch.tensor([[1.0, -1, 1, -1], [1, 1, 1, 1], [-1, -1, -1, -1], [-1, -1, -1, 1], [1, 0, 1, 1]])
    same = torch.full((5, 4), 0.5)
    five = Candidates(
        labels_N=torch.zeros(5, dtype=torch.int64),
        num_classes=2,
        trajectories=[Trajectory(p_NT=same, error_NT=same, margin_NT=margin_NT)],
    )
    assert difficulty(five, "forgetting").tolist() == [2, 0, math.inf, 0, 1]


def test_difficulties_are_means_over_epochs_and_models() -> None:
    one, other = trajectory(1), trajectory(2)
    both = candidates(one, other)
    for name, of_sample in (
        ("el2n", lambda each, i: statistics.mean(each.error_NT[i].tolist())),
        ("aum", lambda each, i: -statistics.mean(each.margin_NT[i].tolist())),
        ("loss", lambda each, i: statistics.mean(-math.log(p) for p in each.p_NT[i].tolist())),
    ):
        expected = [(of_sample(one, i) + of_sample(other, i)) / 2 for i in range(N)]
        assert difficulty(both, name).tolist() == pytest.approx(expected)  # type: ignore[arg-type]


def test_two_equal_trajectories_have_the_scores_of_one_in_dyn_unc() -> None:
    one, two = (select("dyn_unc", candidates(*[trajectory()] * count), k=9) for count in (1, 2))
    assert one.scores_N is not None
    assert two.scores_N is not None
    torch.testing.assert_close(two.scores_N, one.scores_N)


@pytest.mark.parametrize("window", [2, 4, EPOCHS])
def test_windows_of_dual_and_dyn_unc(window: int) -> None:
    one = trajectory()
    found_N2 = _dual_scores(candidates(one), window)
    spread, score = [], []
    for p_T in one.p_NT.tolist():
        windows = [p_T[start : start + window] for start in range(EPOCHS - window + 1)]
        spread.append(statistics.mean(statistics.stdev(each) for each in windows))
        score.append(statistics.mean((1 - statistics.mean(each)) * statistics.stdev(each) for each in windows))
    assert found_N2[:, 1].tolist() == pytest.approx(score)
    assert found_N2[:, 0].tolist() == pytest.approx([statistics.mean(p_T) for p_T in one.p_NT.tolist()])
    picked = select("dyn_unc", candidates(one), k=9, balanced=False, window=window).indices_K
    assert picked.tolist() == sorted(range(N), key=lambda i: -spread[i])[:9]


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [("aum", {}), ("el2n", {}), ("dual", {}), ("dyn_unc", {}), ("forgetting", {})]
    + [("ccs", {"score": score}) for score in ("el2n", "aum", "loss", "forgetting")],
)
def test_a_trajectory_takes_the_place_of_outputs(algorithm: str, options: dict[str, object]) -> None:
    bare = candidates()
    scored = make(N, 3, 4, labels=bare.labels_N)
    beside = Candidates(labels_N=bare.labels_N, num_classes=3, outputs=scored.outputs, trajectories=bare.trajectories)
    chosen = [select(algorithm, each, k=12, **options) for each in (bare, beside)]
    assert torch.equal(chosen[0].indices_K, chosen[1].indices_K)
    assert len(chosen[0].indices_K.unique()) == 12
    assert torch.bincount(bare.labels_N[chosen[0].indices_K]).tolist() == [4, 4, 4]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_trajectories_are_computed_in_float32(dtype: torch.dtype) -> None:
    """In half precision most mean scores would be equal, and the lowest index would win."""
    half = {name: tensor.to(dtype) for name, tensor in trajectory(n=3000).tensors().items()}
    both = [half, {name: tensor.float() for name, tensor in half.items()}]
    labels_N = torch.arange(3000) % 3
    of_half, of_single = (Candidates.of(labels_N, trajectories=Trajectory.of(each)) for each in both)
    scored = [("ccs", {"score": score}) for score in ("el2n", "aum", "loss")]
    for algorithm, options in [*((name, {}) for name in ("aum", "el2n", "dual", "dyn_unc")), *scored]:
        same(select(algorithm, of_half, k=60, **options), select(algorithm, of_single, k=60, **options))


SCORED = [*((name, {}) for name in ("aum", "el2n", "dual", "dyn_unc")), ("ccs", {"score": "loss"})]


@pytest.mark.parametrize(("algorithm", "options"), SCORED)
@pytest.mark.parametrize("limit", [1, 777])
def test_neither_blocks_nor_the_order_of_the_memory_change_a_score(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, options: dict[str, Any], limit: int
) -> None:
    """`torch.stack(epochs).T` lies epoch after epoch in memory. Sums over it rounded equal samples differently."""
    half = {name: tensor.float()[:20].repeat(3, 1) for name, tensor in trajectory(epochs=17).tensors().items()}
    by_epoch = Trajectory.of({name: tensor.T.contiguous().T for name, tensor in half.items()})
    scores_N = select(algorithm, candidates(by_epoch), k=12, **options).scores_N
    assert scores_N is not None
    assert scores_N.equal(scores_N[:20].repeat(3))
    monkeypatch.setattr(blocks, "BLOCK_BYTES", limit)
    found_N = select(algorithm, candidates(Trajectory.of(half)), k=12, **options).scores_N
    assert found_N is not None
    assert found_N.equal(scores_N)


@pytest.mark.parametrize("algorithm", ["dual", "dyn_unc"])
def test_the_windows_of_all_samples_are_never_held_at_once(monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2**16)
    n, epochs = 4000, 30
    recorded = Candidates.of([0] * n, trajectories=trajectory(n=n, epochs=epochs))
    assert peak_bytes(lambda: select(algorithm, recorded, k=40, window=10)) <= n * epochs * 8


@pytest.mark.parametrize("balanced", [True, False])
def test_auto_reads_a_trajectory_of_two_epochs_up_to_30_percent(balanced: bool) -> None:
    def chosen(fraction: float, epochs: int) -> str:
        return select("auto", candidates(trajectory(epochs=epochs)), fraction=fraction, balanced=balanced).algorithm

    bare = "stratified" if balanced else "random"
    assert [chosen(fraction, EPOCHS) for fraction in (0.02, 0.1, 0.3, 0.31)] == ["dual", "dual", "dual", bare]
    assert [chosen(fraction, 1) for fraction in (0.05, 0.1)] == ["ccs", bare]
    assert resolve("auto", 0.2, epochs=2) == "dual"
    assert requirements("auto", 0.2, epochs=2) == requirements("dual", 0.2)


def test_trajectories_are_taken_from_whatever_holds_them() -> None:
    good = trajectory()
    expected = select("dual", candidates(good), k=12).indices_K
    forms: list[Callable[[Tensor], Any]] = [Tensor.numpy, Tensor.tolist, lambda each: each.clone().requires_grad_()]
    for form in forms:
        found = Trajectory(p_NT=form(good.p_NT), error_NT=form(good.error_NT), margin_NT=form(good.margin_NT))
        assert not found.p_NT.requires_grad
        assert torch.equal(select("dual", candidates(found), k=12).indices_K, expected)
    shared = Trajectory.of({name: tensor.half().numpy() for name, tensor in good.tensors().items()})
    assert shared.p_NT.dtype == torch.float16
    array = good.p_NT.numpy()
    assert Trajectory.of(good.tensors() | {"p": array}).p_NT.data_ptr() == array.ctypes.data
    whole = (good.margin_NT > 0).int()
    assert Trajectory(p_NT=whole, error_NT=1 - whole, margin_NT=whole).p_NT.dtype == torch.float32
    alone = Candidates.of(torch.arange(N) % 3, trajectories=good)
    assert torch.equal(select("dual", alone, k=12).indices_K, expected)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"p": "abc"}, UsageError, "p_NT of a trajectory: "),
        ({"p": [[1.0], [1.0, 2.0]]}, UsageError, "p_NT of a trajectory: "),
        ({"margin": torch.zeros(N, EPOCHS, dtype=torch.complex64)}, UsageError, "must be real numbers, not torch.comp"),
        ({"p": torch.full((N, EPOCHS), 1.5)}, UsageError, "p in the trajectory of sample 0 is outside 0..1"),
        ({"p": torch.full((N, EPOCHS), -0.5)}, UsageError, "p in the trajectory of sample 0 is outside 0..1"),
        ({"error": torch.full((N, EPOCHS), torch.inf)}, RunError, "error in the trajectory of sample 0 is infinite"),
    ],
)
def test_values_that_are_no_trajectory(changes: dict[str, Any], error: type[LiptError], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        Trajectory.of(trajectory().tensors() | changes)
    assert raised.value.remedy
    with pytest.raises(UsageError, match=r"trajectories hold a Tensor, not a lipt.Trajectory"):
        Candidates.of(torch.arange(N) % 3, trajectories=[trajectory().p_NT])  # type: ignore[list-item]


def test_eight_bits_are_read_as_float32() -> None:
    tensors = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in trajectory().tensors().items()}
    found = Trajectory.of(tensors)
    assert torch.equal(found.p_NT, tensors["p"].float())
    with pytest.raises(UsageError, match=r"forgetting counts must be real numbers, not torch.complex64"):
        select("forgetting", Candidates.of([0, 1, 2], forgetting=torch.ones(3, dtype=torch.complex64)), k=1)


def test_auto_says_which_inputs_it_did_not_use() -> None:
    def said(fraction: float, **inputs: Any) -> str:
        return " ".join(select("auto", Candidates.of(torch.arange(N) % 3, **inputs), fraction=fraction).remarks)

    one, two = (
        f"auto: this is a random subset, because {why}"
        for why in (
            "above 5 % of the data scores without a trajectory gained little or nothing over one in our measurements "
            "on CIFAR-10; ",
            "we did not measure scores along a trajectory above 30 % of the data; ",
        )
    )
    scores, good = torch.rand(N), trajectory()
    assert f"{one}your scores were not used" in said(0.1, scores=scores)
    assert "such as scores, to use them" in said(0.1, scores=scores)
    assert f"{two}the trajectories were not used" in said(0.4, trajectories=[good])
    assert f"{one}the trajectories" in said(0.4, trajectories=[trajectory(epochs=1)])
    assert "the trajectories and your scores were not used" in said(0.4, trajectories=[good], scores=scores)
    assert "auto: the forgetting counts were not used" in said(0.1, trajectories=[good], forgetting=torch.ones(N))
    logits = torch.randn(N, 3)
    assert f"{two}the outputs of the models and the trajectories were not used" in said(
        0.4, trajectories=[good], logits=logits
    )
    assert not said(0.1, trajectories=[good], logits=logits)
    assert not said(0.05, logits=logits)


def test_dual_draws_at_random_and_top_does_not() -> None:
    drawn = {tuple(select("dual", candidates(), k=12, seed=seed).indices_K.tolist()) for seed in range(4)}
    assert len(drawn) == 4
    top = {tuple(select("dyn_unc", candidates(), k=12, seed=seed).indices_K.tolist()) for seed in range(4)}
    assert len(top) == 1


def drawn_by_dual(p_PT: Tensor) -> Tensor:
    """How often `dual` draws each of these samples (P,). Each of 1,500 classes has the same samples; one is drawn."""
    kinds, classes = len(p_PT), 1500
    p_NT = p_PT.repeat(classes, 1)
    recorded = Trajectory(p_NT=p_NT, error_NT=p_NT, margin_NT=p_NT)
    labels_N = torch.arange(classes).repeat_interleave(kinds)
    picked_K = select("dual", Candidates.of(labels_N, trajectories=recorded), k=classes, balanced=True).indices_K
    return torch.bincount(picked_K % kinds, minlength=kinds) / classes


def test_dual_draws_in_proportion_to_the_spread_where_the_means_are_equal() -> None:
    spread_P = torch.tensor([8, 4, 2, 2, 1], dtype=torch.float64) / 100
    found_P = drawn_by_dual(torch.stack([0.5 - spread_P, 0.5 + spread_P], 1))
    torch.testing.assert_close(found_P, (spread_P / spread_P.sum()).float(), atol=0.03, rtol=0)


def test_the_density_of_dual_is_that_of_the_ten_highest_scores() -> None:
    """They have mean .5; the lower scores have mean .7."""
    mean_P, spread_P = (torch.tensor(values, dtype=torch.float64) for values in ([0.5, 0.7], [0.1, 0.05]))
    found_P = drawn_by_dual(torch.stack([mean_P - spread_P, mean_P + spread_P], 1))
    b = 15 * (1 - 0.5) * (1 - 0.5**4)
    density_P = (1 - mean_P) * spread_P * mean_P ** (15 - b) * (1 - mean_P) ** (b - 1)
    torch.testing.assert_close(found_P, (density_P / density_P.sum()).float(), atol=0.03, rtol=0)


def test_trajectories_that_do_not_fit_are_refused() -> None:
    good = trajectory()
    with pytest.raises(UsageError, match="three arrays"):
        Trajectory(p_NT=good.p_NT, error_NT=good.error_NT[:, :3], margin_NT=good.margin_NT)
    with pytest.raises(UsageError, match="three arrays"):
        Trajectory(p_NT=good.p_NT[:, :0], error_NT=good.p_NT[:, :0], margin_NT=good.p_NT[:, :0])
    broken = good.p_NT.clone()
    broken[17, 3] = torch.nan
    with pytest.raises(RunError, match="p in the trajectory of sample 17 is NaN"):
        Trajectory(p_NT=broken, error_NT=good.error_NT, margin_NT=good.margin_NT)
    with pytest.raises(UsageError, match="trajectory 0 covers 5 samples; there are 60"):
        candidates(trajectory(n=5))
    bare = Candidates(labels_N=torch.arange(N) % 3, num_classes=3)
    for algorithm in ("aum", "dyn_unc"):
        with pytest.raises(UsageError, match="needs a trajectory"):
            select(algorithm, bare, k=6)
    with pytest.raises(UsageError, match="window must be between 2 and the number of epochs, 7"):
        select("dual", candidates(), k=6, window=9)
    with pytest.raises(UsageError, match="window must be at least 2"):
        select("dyn_unc", candidates(), k=6, window=1)
    with pytest.raises(UsageError, match="at least two epochs"):
        select("dyn_unc", candidates(trajectory(epochs=1)), k=6)
