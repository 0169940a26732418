"""The inputs of every library, and the measures for its result."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor, nn

from lipt.selection import Candidates, Outputs

#: Share of samples kept, and number of random subsets averaged.
FRACTION, DRAWS = 0.1, 20
#: CPU seconds after which a run on 100 samples counts as endless.
PATIENCE = 3


class Classifier(nn.Linear):
    """The last layer alone; cords expects `last`, `freeze` and `get_embedding_dim`."""

    def forward(self, input: Tensor, last: bool = False, freeze: bool = False) -> Any:  # noqa: A002
        logits = super().forward(input)
        return (logits, input) if last else logits

    def get_embedding_dim(self) -> int:
        return self.in_features


@dataclass
class Problem:
    """Features, labels and a trained last layer."""

    features: Tensor
    labels: Tensor
    model: Classifier

    @property
    def classes(self) -> int:
        return self.model.out_features

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, index: Tensor) -> Problem:
        """Some samples, or all of them in another order."""
        return Problem(self.features[index], self.labels[index], self.model)

    def candidates(self, batch: int | None = None) -> Candidates:
        """The input of LiPT, scored in batches of `batch` samples."""
        with torch.no_grad():
            logits = torch.cat([self.model(part) for part in self.features.split(batch or len(self))])
        return Candidates(
            labels_N=self.labels,
            num_classes=self.classes,
            outputs=[Outputs(logits_NC=logits, features_ND=self.features)],
        )

    def errors(self) -> Tensor:
        """softmax(z) - onehot(y), float64."""
        with torch.no_grad():
            return self.model(self.features).double().softmax(1) - torch.eye(self.classes).double()[self.labels]

    def gradients(self) -> Tensor:
        """All last-layer gradients (n, C + C d), bias first, float64."""
        weight = self.errors()[:, :, None] * self.features.double()[:, None, :]
        return torch.cat([self.errors(), weight.flatten(1)], 1)

    def members(self, label: int) -> Tensor:
        return (self.labels == label).nonzero().flatten()


def problem(
    sizes: Sequence[int] = (350, 350, 350, 350), d: int = 64, seed: int = 0, apart: float = 0.25, steps: int = 60
) -> Problem:
    """Clustered non-negative features as after a ReLU network, shuffled, and a last layer trained for `steps` steps.
    The further `apart` the classes are, the more confident it is."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])
    labels = labels[torch.randperm(len(labels), generator=g)]
    own = torch.randn(len(sizes), d, generator=g) * apart
    shared = torch.randn(6, d, generator=g) * 0.6
    noise = torch.randn(len(labels), d, generator=g) * 0.6
    features = (own[labels] + shared[torch.randint(6, labels.shape, generator=g)] + noise).relu()
    model = Classifier(d, len(sizes))
    with torch.no_grad():
        model.weight.copy_(torch.randn(model.weight.shape, generator=g) / d**0.5)
        model.bias.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), labels).backward()
        optimizer.step()
    return Problem(features, labels, model)


def random_sets(n: int, k: int, draws: int = DRAWS) -> list[Tensor]:
    """Uniform subsets of k out of n."""
    g = torch.Generator().manual_seed(99)
    return [torch.randperm(n, generator=g)[:k] for _ in range(draws)]


def stratified_sets(p: Problem, draws: int = DRAWS) -> list[Tensor]:
    """Uniform subsets of every class."""
    g = torch.Generator().manual_seed(99)
    sets = []
    for _ in range(draws):
        order = torch.randperm(len(p), generator=g)
        own = [order[p.labels[order] == label] for label in range(p.classes)]
        sets.append(torch.cat([each[: round(FRACTION * len(each))] for each in own]))
    return sets


def overlap(a: Sequence[int] | Tensor, b: Sequence[int] | Tensor) -> float:
    """Share of the samples of `a` that are in `b`."""
    first, second = {int(i) for i in a}, {int(i) for i in b}
    return len(first & second) / max(1, len(first))


def cover(distances: Tensor, picks: Sequence[int] | Tensor) -> float:
    """The k-medoid objective: sum over all samples of the distance to the nearest pick."""
    return float(distances[:, torch.as_tensor(picks)].min(1).values.sum())


def naive_medoids(distances: Tensor, k: int) -> list[int]:
    """The exact greedy: computes every gain again in every step."""
    picked = [int(distances.sum(1).argmin())]
    while len(picked) < k:
        nearest = distances[:, picked].min(1).values
        gains = (nearest[:, None] - distances).clamp_min(0).sum(0)
        gains[picked] = -1
        picked.append(int(gains.argmax()))
    return picked


def progress(value: float, chance: float, exact: float) -> float:
    """0 = as good as random, 1 = as good as the exact greedy."""
    return (value - chance) / (exact - chance)


def matching_error(p: Problem, picks: Sequence[int] | Tensor, weights: Sequence[float] | Tensor) -> float:
    """|mean g - weighted mean g_S| / |mean g|, weights normalised as in training, averaged over the classes."""
    g, picks, weights = p.gradients(), torch.as_tensor(picks), torch.as_tensor(weights).double()
    errors = []
    for label in range(p.classes):
        own, goal = p.labels[picks] == label, g[p.members(label)].mean(0)
        mean = (weights[own, None] * g[picks[own]]).sum(0) / weights[own].sum().clamp_min(1e-12)
        errors.append(float((goal - mean).norm() / goal.norm()))
    return float(np.mean(errors))


def nnls_excess(
    p: Problem, picks: Sequence[int] | Tensor, weights: Sequence[float] | Tensor, lam: float, *, relative: bool = False
) -> float:
    """|sum w g_S - sum g|^2 + lam |w|^2 relative to its minimum over w >= 0, minus 1, added up over the classes.

    Args:
        relative: lam is in units of the mean |g|^2 of each class.
    """
    g, picks, weights = p.gradients(), torch.as_tensor(picks), torch.as_tensor(weights).double()
    found = least = 0.0
    for label in range(p.classes):
        own, goal = p.labels[picks] == label, g[p.members(label)].sum(0).numpy()
        k, unit = int(own.sum()), float(g[p.members(label)].square().sum(1).mean()) if relative else 1.0
        system = np.vstack([g[picks[own]].numpy().T, (lam * unit) ** 0.5 * np.eye(k)])
        _, root = nnls(system, np.concatenate([goal, np.zeros(k)]), maxiter=100 * k)
        found += float(np.square(system @ weights[own].numpy() - np.concatenate([goal, np.zeros(k)])).sum())
        least += root**2
    return found / least - 1


def measured(function: Callable[[], Any]) -> tuple[Any, float, float]:
    """Result, CPU seconds, and increase of resident memory in MB (sampled every 5 ms)."""
    statm, peak, stop = Path("/proc/self/statm"), [0], threading.Event()

    def resident() -> int:
        return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0

    def watch() -> None:
        while not stop.is_set():
            peak[0] = max(peak[0], resident())
            time.sleep(0.005)

    before, watcher, start = resident(), threading.Thread(target=watch), time.process_time()
    watcher.start()
    try:
        result = function()
    finally:
        seconds = time.process_time() - start
        stop.set()
        watcher.join()
    return result, seconds, max(0, peak[0] - before) / 1e6


def outcome(function: Callable[[], str]) -> str:
    """The return value or the error, in one line; stops after `PATIENCE` seconds of CPU time."""

    def give_up(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
    try:
        return function()
    except TimeoutError:
        return f"**no end after {PATIENCE} s of CPU time** ✗"
    except Exception as error:  # the error of the library is the result
        text = " ".join(str(error).replace("|", "/").split())
        return f"{type(error).__name__}: {text[:64]}{'…' * (len(text) > 64)}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
