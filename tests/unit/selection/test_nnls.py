"""Non-negative least squares against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from lipt.selection.numerics.nnls import DEPENDENT, FLAT, ROUNDING, NonNegativeLeastSquares


@settings(max_examples=40)
@given(seed=st.integers(0, 9999), rank=st.integers(1, 8), lam=st.sampled_from([0.0, 1e-6, 0.1]))
def test_nnls_fits_as_well_as_scipy_after_every_variable(seed: int, rank: int, lam: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(rank, 12)), rng.normal(size=rank)
    a[:, 5] = a[:, 1] + a[:, 2]  # dependent
    a[:, 9] = a[:, 3]  # twice
    solver = NonNegativeLeastSquares(12, lam)
    for t in range(12):
        weights = solver.add(a[:, : t + 1].T @ a[:, t], a[:, t] @ b)
        assert weights.min() >= 0
        system = np.vstack([a[:, : t + 1], np.sqrt(lam) * np.eye(t + 1)])
        goal = np.concatenate([b, np.zeros(t + 1)])
        assert np.linalg.norm(system @ weights - goal) == pytest.approx(nnls(system, goal)[1], abs=1e-6)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 9999), rank=st.integers(1, 12), lam=st.sampled_from([0.0, 1e-6, 0.03]),
    apart=st.sampled_from([0.0, 1e-12, 1e-7, 1e-5, 1e-3]),
)  # fmt: skip
@example(seed=5872, rank=7, lam=1e-6, apart=0.0)
@example(seed=632873449, rank=8, lam=1e-6, apart=0.0)  # a cycle, where a wrong distance let a variable in
@example(seed=518441882, rank=11, lam=1e-6, apart=0.0)  # many variables enter at once
def test_nnls_is_optimal_after_every_variable(seed: int, rank: int, lam: float, apart: float) -> None:
    """Also where an inverse drifts: columns that are equal, or nearly the sum of two others."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(rank, 40)), rng.normal(size=rank)
    for j in range(2, 40):
        if (kind := rng.integers(4)) < 2:
            a[:, j] = a[:, rng.integers(j, size=1 + kind)].sum(1) + apart * rng.normal(size=rank)
    solver = NonNegativeLeastSquares(40, lam)
    for t in range(40):
        weights = solver.add(a[:, : t + 1].T @ a[:, t], a[:, t] @ b)
        assert len(weights) == t + 1
        assert weights.min() >= 0
        system = np.vstack([a[:, : t + 1], np.sqrt(lam) * np.eye(t + 1)])
        rest = np.concatenate([b, np.zeros(t + 1)]) - system @ weights
        slopes, square_norms = system.T @ rest, np.square(system).sum(0)
        positive = weights > 0
        # The backward error: slopes of this size vanish if b and the system change by these shares. In the limit is
        # twice what the solver allows, as its slopes are of the rounded normal equations.
        limit = 2 * (FLAT * np.abs(a[:, : t + 1].T @ b).max() + ROUNDING * square_norms.max() * weights.sum())
        np.testing.assert_allclose(slopes[positive], 0, atol=limit)
        if (rising := (slopes > limit) & ~positive).any():  # only where it nearly depends on the positive ones
            basis = np.linalg.qr(system[:, positive])[0]
            across = system[:, rising] - basis @ (basis.T @ system[:, rising])
            assert (np.square(across).sum(0) < 2 * DEPENDENT * square_norms[rising]).all()


def test_nnls_builds_a_wrong_inverse_anew() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(8, 30)), rng.normal(size=8)
    solver, healthy = NonNegativeLeastSquares(30, 0.0), NonNegativeLeastSquares(30, 0.0)
    for t in range(30):
        if t == 20:
            solver._inverse_PP += 1e3 * rng.normal(size=solver._inverse_PP.shape)
        weights, expected = (each.add(a[:, : t + 1].T @ a[:, t], a[:, t] @ b) for each in (solver, healthy))
        np.testing.assert_allclose(weights, expected, atol=1e-8)
