"""Selection of candidates that lie on a GPU: the same samples as on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lipt import ALGORITHMS, select
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
