"""Selection of candidates that lie on a GPU: the same samples as on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from lipt import ALGORITHMS, score_dataset, select
from lipt.errors import UsageError
from lipt.selection import Candidates, Outputs, Selection, Trajectory

N, C, D, T = 600, 4, 12, 6


def candidates(device: str, seed: int = 0) -> Candidates:
    g = torch.Generator().manual_seed(seed)
    labels_N = torch.randint(C, (N,), generator=g)
    features_ND = torch.randn(C, D, generator=g, dtype=torch.float64)[labels_N] + torch.randn(
        N, D, generator=g, dtype=torch.float64
    )
    logits_NC = features_ND @ torch.randn(D, C, generator=g, dtype=torch.float64)
    p_NT = torch.rand(N, T, generator=g)
    seen = {"p": p_NT, "error": (1 - p_NT) * 1.2, "margin": torch.randn(N, T, generator=g)}

    def there(tensor: Tensor) -> Tensor:
        return tensor.to(device)

    return Candidates(
        labels_N=there(labels_N),
        num_classes=C,
        outputs=[Outputs(logits_NC=there(logits_NC), features_ND=there(features_ND))],
        trajectories=[Trajectory.of({name: there(tensor) for name, tensor in seen.items()})],
        forgetting_N=there(torch.randint(5, (N,), generator=g).float()),
        scores_N=there(torch.randn(N, generator=g)),
    )


def chosen(algorithm: str, device: str, *, balanced: bool) -> Selection:
    return select(algorithm, candidates(device), k=60, seed=0, balanced=balanced)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_subset_does_not_depend_on_the_device(algorithm: str, balanced: bool) -> None:
    on_gpu, on_cpu = (chosen(algorithm, device, balanced=balanced) for device in ("cuda", "cpu"))
    assert sorted(on_gpu.indices_K.tolist()) == sorted(on_cpu.indices_K.tolist())
    torch.testing.assert_close(on_gpu.weights_K.cpu(), on_cpu.weights_K, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("per", ["class", "class_gradient", "batch"])
def test_gradmatch_runs_on_the_cpu_and_gives_picks_and_weights_back(per: str, balanced: bool) -> None:
    on_gpu, on_cpu = (
        select("gradmatch", candidates(device), k=60, balanced=balanced, per=per, batch_size=7)
        for device in ("cuda", "cpu")
    )
    assert on_gpu.indices_K.is_cuda
    assert on_gpu.weights_K.is_cuda
    assert on_gpu.indices_K.tolist() == on_cpu.indices_K.tolist()
    assert on_gpu.weights_K.tolist() == on_cpu.weights_K.tolist()


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_default_device_changes_nothing(algorithm: str, device: str) -> None:
    expected = select(algorithm, candidates(device), k=60)
    samples = candidates(device)
    with torch.device("cuda"):
        assert select(algorithm, samples, k=60).indices_K.tolist() == expected.indices_K.tolist()


@pytest.mark.parametrize("default", ["cuda", "cpu"])
def test_data_on_a_gpu_are_scored_into_the_memory_of_the_cpu(default: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    data = torch.rand(20, 3, 2, 2), torch.arange(20) % 3
    expected = score_dataset(model, TensorDataset(*data))
    model.cuda()
    on_gpu = TensorDataset(*(each.cuda() for each in data))
    with torch.device(default):
        scored = score_dataset(model, on_gpu)
    assert scored.labels_N.tolist() == expected.labels_N.tolist()
    torch.testing.assert_close(scored.outputs[0].logits_NC, expected.outputs[0].logits_NC)
    torch.testing.assert_close(scored.outputs[0].features_ND, expected.outputs[0].features_ND)


@pytest.mark.parametrize(("of_labels", "of_trajectory"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_trajectory_moves_to_the_labels(of_labels: str, of_trajectory: str) -> None:
    samples, recorded = candidates(of_labels), candidates(of_trajectory).trajectories
    mixed = Candidates.of(samples.labels_N, trajectories=recorded)
    expected = Candidates.of(samples.labels_N, trajectories=samples.trajectories)
    assert select("dyn_unc", mixed, k=60) == select("dyn_unc", expected, k=60)


def test_validation_samples_on_another_device_are_refused() -> None:
    with pytest.raises(UsageError, match="the candidates are on cuda:0, the validation samples on cpu"):
        select("glister", candidates("cuda"), k=60, validation=candidates("cpu"))
