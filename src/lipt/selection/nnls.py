"""Non-negative least squares on supports that grow by one variable at a time, for many problems side by side."""

from __future__ import annotations

import torch
from torch import Tensor


class GrowingNonNegativeLeastSquares:
    """The minimisers w >= 0 of w^T (A + lam I) w - 2 b^T w of G problems, kept exact while variables are added.

    Lawson & Hanson's active set method, warm-started, on the tableau of the sweep operator (Beaton 1964; Goodnight
    1979): with P the positive variables and b as row and column 0 it holds -inv(A_PP), the solution inv(A_PP) b_P, the
    slopes b_j - A_jP inv(A_PP) b_P and the Schur complement of the others. Letting a variable in and putting it out
    are the same rank-one update, O(t^2), so that a step needs no decision on the host: fit for a GPU. Float64.

    Args:
        groups: G.
        capacity: the number of variables that will be added.
        lam: ridge.
        device: of all tensors.
    """

    #: A variable this close (squared relative distance) to the span of the positive ones is not let in.
    DEPENDENT = 1e-8
    #: A slope this small, relative to the largest right-hand side, is zero.
    FLAT = 1e-10

    def __init__(self, groups: int, capacity: int, lam: float, device: torch.device) -> None:
        self.lam = lam
        self.size = 0
        self.w_GK = torch.zeros(groups, capacity, dtype=torch.float64, device=device)
        self.unsettled_G = torch.zeros(groups, dtype=torch.bool, device=device)
        """Problems that at some `add` would have needed more rounds than they were given."""
        self._tableau_GXX = self.w_GK.new_zeros(groups, capacity + 1, capacity + 1)
        self._positive_GX = torch.zeros(groups, capacity + 1, dtype=torch.bool, device=device)
        self._system_GXX = torch.zeros_like(self._tableau_GXX)  # A + lam I and b as they came, not swept
        self._norm_GX = self.w_GK.new_zeros(groups, capacity + 1)  # its diagonal
        self._scale_G = self.w_GK.new_zeros(groups)
        self._group_G = torch.arange(groups, device=device)

    def add(self, gram_GT: Tensor, b_G: Tensor, live_G: Tensor, rounds: int | None = None) -> Tensor:
        """Add one variable to each problem and solve again.

        Args:
            gram_GT: its inner products with all variables so far and, last, with itself.
            b_G: its right-hand side.
            live_G: bool; the others keep their weights for good.
            rounds: variables that may enter or leave, at most; None = as many as it takes, which asks the device after
                each. A problem that needed more is marked in `unsettled_G`.

        Returns:
            All weights so far (G, T), valid until the next call.
        """
        self._border(gram_GT, b_G)
        tolerance_G = self._scale_G * self.FLAT
        # The others are solved: none has to leave or enter before the new one has.
        pivot_G = torch.full_like(self._group_G, self.size)
        last_G2 = self._tableau_GXX[:, self.size, [0, self.size]]
        needed_G = live_G & (last_G2[:, 0] > tolerance_G)
        needed_G &= last_G2[:, 1] > self._norm_GX[:, self.size] * self.DEPENDENT
        limit = 3 * self.size if rounds is None else rounds  # the usual bound of Lawson & Hanson; two or three suffice
        for _ in range(limit):
            if rounds is not None or bool(needed_G.any()):
                self._sweep(pivot_G, needed_G)
            pivot_G, needed_G = self._next_pivot(live_G, tolerance_G)
            if rounds is None and not bool(needed_G.any()):
                break
        else:
            self.unsettled_G |= needed_G
        return self.w_GK[:, : self.size]

    def refine(self) -> Tensor:
        """Take out of the weights what rounding has left in the tableau; (G, T)."""
        end = self.size + 1
        positive_GT = self._positive_GX[:, 1:end]
        system_GXX = self._system_GXX[:, 1:end]
        for _ in range(2):
            rest_GT = system_GXX[:, :, 0] - _product(system_GXX[:, :, 1:end], self.w_GK[:, : self.size])
            change_GT = -_product(self._tableau_GXX[:, 1:end, 1:end], rest_GT.where(positive_GT, 0.0))
            self.w_GK[:, : self.size] += change_GT.where(positive_GT, 0.0)
        return self.w_GK[:, : self.size].clamp_(min=0)

    def _border(self, gram_GT: Tensor, b_G: Tensor) -> None:
        """The row and column of a new variable, as if it had been there before all sweeps."""
        self.size += 1
        last = self.size
        column_GX = torch.cat([b_G[:, None], gram_GT], dim=1).double()
        column_GX[:, last] += self.lam
        self._system_GXX[:, last, : last + 1] = self._system_GXX[:, : last + 1, last] = column_GX
        self._norm_GX[:, last] = column_GX[:, last]
        self._scale_G = torch.maximum(self._scale_G, column_GX[:, 0].abs())
        positive_GX = self._positive_GX[:, : last + 1]
        known_GX = column_GX * positive_GX
        swept_GX = _product(self._tableau_GXX[:, : last + 1, :last], known_GX[:, :last])
        border_GX = torch.addcmul(-swept_GX, column_GX, ~positive_GX)
        border_GX[:, last] -= (known_GX * border_GX).sum(1)
        self._tableau_GXX[:, last, : last + 1] = self._tableau_GXX[:, : last + 1, last] = border_GX

    def _next_pivot(self, live_G: Tensor, tolerance_G: Tensor) -> tuple[Tensor, Tensor]:
        """Move as far as the positive variables allow; which variable has to leave or enter then, and whether any."""
        end = self.size + 1
        positive_GT, w_GT = self._positive_GX[:, 1:end], self.w_GK[:, : self.size]
        # Of positive variables: their optimum; of the others: their slope.
        column_GT = self._tableau_GXX[:, 1:end, 0]
        goal_GT = column_GT * positive_GT
        blocking_GT = positive_GT & (goal_GT <= 0)
        ratio_GT = (w_GT / (w_GT - goal_GT).clamp_min(1e-300)).where(blocking_GT, torch.inf)
        reach_G, leaving_G = ratio_GT.min(1)
        w_GT.lerp_(goal_GT, (reach_G.clamp(max=1.0) * live_G)[:, None]).clamp_min_(0)
        blocked_G = reach_G.isfinite()
        # Squared distance to the span of the positive ones, ridge included, against the squared norm.
        distance_GT = self._tableau_GXX.diagonal(dim1=1, dim2=2)[:, 1:end]
        open_GT = (distance_GT > self._norm_GX[:, 1:end] * self.DEPENDENT) & ~positive_GT
        slope_G, entering_G = column_GT.where(open_GT, -torch.inf).max(1)
        pivot_G = 1 + torch.where(blocked_G, leaving_G, entering_G)
        return pivot_G, live_G & (blocked_G | (slope_G > tolerance_G))

    def _sweep(self, pivot_G: Tensor, needed_G: Tensor) -> None:
        """Let the variable `pivot_G` in, or put it out if it is positive, in the problems that need it."""
        end = self.size + 1
        tableau_GXX = self._tableau_GXX[:, :end, :end]
        row_GX = tableau_GXX[self._group_G, pivot_G]
        positive_G = self._positive_GX[self._group_G, pivot_G]
        inverse_G = (1 / row_GX[self._group_G, pivot_G]).where(needed_G, 0.0)
        scaled_GX = row_GX * inverse_G[:, None]
        tableau_GXX.baddbmm_(row_GX[:, :, None], scaled_GX[:, None, :], alpha=-1)
        new_GX = scaled_GX.where(~positive_G[:, None], -scaled_GX)
        new_GX[self._group_G, pivot_G] = -inverse_G
        new_GX = new_GX.where(needed_G[:, None], row_GX)
        tableau_GXX[self._group_G, pivot_G] = new_GX
        tableau_GXX[self._group_G, :, pivot_G] = new_GX
        self._positive_GX[self._group_G, pivot_G] = positive_G ^ needed_G


def _product(matrix_GXY: Tensor, vector_GY: Tensor) -> Tensor:
    return torch.bmm(matrix_GXY, vector_GY[:, :, None]).squeeze(2)
