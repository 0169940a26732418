"""The selection algorithms as a good programmer would write them in an afternoon: a few lines of numpy, factored.

Gradients are never materialised (g_i = delta_i (x) h~_i: inner products are products of two small ones), arrays lie
with features first where a product over all candidates is taken in every step, and greedy steps are lazy. These are the
rivals that the engine is measured against. Seven pick the same samples in the same order in the tests
(tests/unit/selection/test_factored.py); in float64 at n = 1500, k = 150, so do craig and glister, and
facility_location but for one tie. In float32 near ties go by rounding.

`python -m benchmarks.selection` times them.

One class: all candidates compete. Arrays are z (n, C), y (n,), h (n, d), in float32 or float64; results are k positions
in order of pick.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[np.floating]
Labels = npt.NDArray[np.int64]


def errors(z: Array, y: Labels) -> Array:
    """delta (C, n) = softmax(z) - onehot(y)."""
    e = z.T.copy()
    e -= e.max(0)
    np.exp(e, out=e)
    e /= e.sum(0)
    e[y, np.arange(len(y))] -= 1
    return e


def grand(z: Array, y: Labels, h: Array, k: int) -> Array:
    e = errors(z, y)
    return np.argsort(-np.einsum("cn,cn->n", e, e) * (np.einsum("nd,nd->n", h, h) + 1))[:k]


def el2n(z: Array, y: Labels, h: Array, k: int) -> Array:
    e = errors(z, y)
    return np.argsort(-np.einsum("cn,cn->n", e, e))[:k]


def moderate(z: Array, y: Labels, h: Array, k: int) -> Array:
    x = h - h.mean(0)
    distance = np.sqrt(np.einsum("nd,nd->n", x, x))
    return np.argsort(np.abs(distance - np.median(distance)), kind="stable")[:k]


def ccs(z: Array, y: Labels, h: Array, k: int, beta: float, strata: int = 50, seed: int = 0) -> Array:
    e = errors(z, y)
    score = np.sqrt(np.einsum("cn,cn->n", e, e))
    easy = np.argsort(-score, kind="stable")[round(beta * len(y)) :]
    low, high = score[easy].min(), score[easy].max()
    stratum = np.clip(np.floor((score[easy] - low) / ((high - low) / strata)), 0, strata - 1).astype(int)
    order = torch.randperm(len(easy), generator=torch.Generator().manual_seed(seed)).numpy()  # the engine's draws
    pools = sorted((order[stratum[order] == s] for s in range(strata)), key=len)
    picked: list[Array] = []
    for s, pool in enumerate(pools):
        picked.append(pool[: (k - sum(map(len, picked))) // (strata - s)])
    return easy[np.concatenate(picked)]


def prototypes(z: Array, y: Labels, h: Array, k: int, seed: int = 0) -> Array:
    """Spherical k-means from k-means++, by the engine's draws."""
    u = h / np.sqrt(np.einsum("nd,nd->n", h, h))[:, None]
    generator, centres, apart = (
        torch.Generator().manual_seed(seed),
        np.empty_like(u[: z.shape[1]]),
        np.full(len(y), 2.0),
    )
    for p in range(len(centres)):
        total = apart.cumsum()
        drawn = torch.rand(1, generator=generator, dtype=torch.float64).item() * total[-1]
        centres[p] = u[np.searchsorted(total, drawn, side="right")]
        np.minimum(apart, np.maximum(1 - u @ centres[p], 0), out=apart)
    owners, onehot = np.full(len(y), -1), np.eye(len(centres), dtype=h.dtype)
    for _ in range(100):
        before, owners = owners, (u @ centres.T).argmax(1)
        if (owners == before).all():
            break
        sums = onehot[owners].T @ u
        norms = np.sqrt(np.einsum("pd,pd->p", sums, sums))[:, None]
        centres = np.divide(sums, norms, out=centres, where=norms > 0)
    return np.argsort((u @ centres.T).max(1), kind="stable")[:k]


def herding(z: Array, y: Labels, h: Array, k: int) -> Array:
    x = h - h.mean(0)
    x_t, norms, total = x.T.copy(), np.einsum("nd,nd->n", x, x) / 2, np.zeros_like(x[0])
    score, picked = np.empty_like(norms), np.empty(k, dtype=np.int64)
    for t in range(k):
        np.dot(total, x_t, out=score)
        score += norms
        picked[t] = best = score.argmin()
        total += x[best]
        norms[best] = np.inf
    return picked


def k_center(z: Array, y: Labels, h: Array, k: int) -> Array:
    x = h - h.mean(0)
    x_t, norms = (-2 * x.T).copy(), np.einsum("nd,nd->n", x, x)
    nearest, distance, picked = np.full_like(norms, np.inf), np.empty_like(norms), np.empty(k, dtype=np.int64)
    best = norms.argmin()
    for t in range(k):
        picked[t] = best
        np.dot(x[best], x_t, out=distance)
        distance += norms
        distance += norms[best]
        np.minimum(nearest, distance, out=nearest)
        nearest[best] = -np.inf
        best = nearest.argmax()
    return picked


def graph_cut(z: Array, y: Labels, h: Array, k: int, lam: float = 0.5) -> Array:
    x = h / np.sqrt(2 * np.einsum("nd,nd->n", h, h))[:, None]
    x_t, change, picked = x.T.copy(), np.empty_like(x[:, 0]), np.empty(k, dtype=np.int64)
    gain = x @ x.sum(0)  # s_ij = (1 + cos) / 2 = .5 + x_i . x_j; the constant does not matter
    x *= -2 * lam
    for t in range(k):
        picked[t] = best = gain.argmax()
        np.dot(x[best], x_t, out=change)
        gain += change
        gain[best] = -np.inf
    return picked


def medoids(distances: Array, k: int) -> Array:
    """Lazy greedy with a heap: a gain that was computed for fewer picks bounds the gain now."""
    picked = [int(distances.sum(1).argmin())]
    nearest = distances[picked[0]].copy()
    after, cost = np.empty_like(nearest), float(nearest.sum())
    heap = [(float(np.minimum(nearest, row, out=after).sum()) - cost, j) for j, row in enumerate(distances)]
    heapq.heapify(heap)
    while len(picked) < k:
        _, j = heapq.heappop(heap)
        if j == picked[0]:
            continue
        np.minimum(nearest, distances[j], out=after)
        fresh = float(after.sum()) - cost
        if fresh <= heap[0][0]:
            picked.append(j)
            nearest, after, cost = after, nearest, cost + fresh
        else:
            heapq.heappush(heap, (fresh, j))
    return np.array(picked)


def facility_location(z: Array, y: Labels, h: Array, k: int) -> Array:
    u = h / np.sqrt(np.einsum("nd,nd->n", h, h))[:, None]
    distances = u @ u.T
    return medoids(np.subtract(1, distances, out=distances), k)


def craig(z: Array, y: Labels, h: Array, k: int) -> Array:
    e, h1 = errors(z, y), np.concatenate([h, np.ones_like(h[:, :1])], 1)
    norms = np.einsum("cn,cn->n", e, e) * np.einsum("nd,nd->n", h1, h1)
    d = e.T @ e
    d *= h1 @ h1.T
    d *= -2
    d += norms
    d += norms[:, None]
    np.fill_diagonal(d, 0)
    return medoids(np.sqrt(np.maximum(d, 0, out=d), out=d), k)


def glister(z: Array, y: Labels, h: Array, k: int) -> Array:
    e, h1_t = errors(z, y), np.concatenate([h.T, np.ones_like(h[:, :1].T)])
    eta, moved, picked, taken = 0.1 / np.square(h1_t).sum(0).mean(), z.T.copy(), np.empty(k, dtype=np.int64), []
    for t in range(k):
        gradient = errors(moved.T, y) @ h1_t.T / len(y)
        gain = gradient @ h1_t
        gain *= e
        total = gain.sum(0)
        total[taken] = -np.inf
        picked[t] = best = int(total.argmax())
        taken.append(best)
        moved -= np.outer(eta * e[:, best], h1_t[:, best] @ h1_t)
    return picked


def gradmatch(z: Array, y: Labels, h: Array, k: int, lam: float) -> Array:
    """Orthogonal matching pursuit; non-negative weights by Lawson & Hanson on a bordered inverse of the active set."""
    n = len(y)
    e, h1_t = errors(z, y), np.concatenate([h.T, np.ones_like(h[:, :1].T)])
    b = ((e.astype(np.float64) @ h1_t.T.astype(np.float64)) @ h1_t * e).sum(0)
    e_n, h1 = e.T.copy(), h1_t.T.copy()
    lam *= float((np.square(e).sum(0) * np.square(h1_t).sum(0)).mean())  # in units of a squared gradient
    rows, gram, right = np.empty((k, n), dtype=h.dtype), np.zeros((k, k)), np.zeros(k)
    inverse, active, w = np.zeros((k, k)), np.empty(0, dtype=np.int64), np.zeros(k)
    correlation, taken, picked = b.astype(h.dtype), np.zeros(n, dtype=h.dtype), np.empty(k, dtype=np.int64)
    for t in range(k):
        picked[t] = best = (correlation + taken).argmax()
        taken[best] = -np.inf
        np.multiply(e_n[best] @ e, h1[best] @ h1_t, out=rows[t])
        gram[t, : t + 1] = gram[: t + 1, t] = rows[t, picked[: t + 1]]
        gram[t, t] += lam
        right[t] = b[best]
        entering = t
        while True:
            m, column = len(active), gram[active, entering]  # border the inverse of the active set
            u = inverse[:m, :m] @ column
            s = 1 / (gram[entering, entering] - column @ u)
            inverse[:m, :m] += np.outer(s * u, u)
            inverse[m, :m] = inverse[:m, m] = -s * u
            inverse[m, m] = s
            active = np.append(active, entering)
            goal = inverse[: m + 1, : m + 1] @ right[active]
            while goal.min() <= 0:  # go as far as the weights stay positive, and put out what has become zero
                old = w[active]
                blocking = goal <= 0
                w[active] += (old[blocking] / (old[blocking] - goal[blocking])).min() * (goal - old)
                out = int(np.where(blocking, w[active], np.inf).argmin())
                w[active[out]] = 0
                m, active = len(active) - 1, np.delete(active, out)
                keep = np.delete(np.arange(m + 1), out)
                row = inverse[out, keep]
                inverse[:m, :m] = inverse[np.ix_(keep, keep)] - np.outer(row / inverse[out, out], row)
                goal = inverse[:m, :m] @ right[active]
            w[active] = goal
            slope = right[: t + 1] - gram[: t + 1, active] @ goal
            slope[active] = -np.inf
            entering = int(slope.argmax())
            if slope[entering] <= 1e-10 * np.abs(right).max():
                break
        correlation = (b - w[: t + 1].astype(h.dtype) @ rows[: t + 1]).astype(h.dtype)
    return picked


RIVALS: dict[str, Callable[..., Array]] = {
    "grand": grand,
    "el2n": el2n,
    "moderate": moderate,
    "prototypes": prototypes,
    "ccs": ccs,
    "herding": herding,
    "k_center": k_center,
    "graph_cut": graph_cut,
    "facility_location": facility_location,
    "craig": craig,
    "glister": glister,
    "gradmatch": gradmatch,
}
