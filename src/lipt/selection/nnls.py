"""Non-negative least squares to which variables are added one at a time: one problem, or many on a GPU."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array: TypeAlias = npt.NDArray[np.floating]

#: A variable this close (squared relative distance) to the span of the positive ones does not enter.
DEPENDENT = 1e-8
#: The projection of a variable closer than this is refined: rounding of the inverse could exceed the distance.
NEAR = 1e-4
#: A slope this small, relative to the largest right-hand side, is zero.
FLAT = 1e-10
#: A slope also counts as zero if changing the system by this share of its largest entry could make it zero.
ROUNDING = 1e-14
#: Corrections of the weights after each variable that enters, at most.
REPAIRS = 6


class NonNegativeLeastSquares:
    """The minimiser w >= 0 of w^T (A + lam I) w - 2 b^T w, kept exact while variables are added; float64, on a CPU.

    This is the active set method of Lawson & Hanson, started from the previous solution. It keeps the inverse of the
    system of the m positive variables. A variable enters by a border and leaves by a rank-one update, both in O(m^2).
    The inverse loses digits where columns are nearly dependent. So the projection of a variable that nearly depends on
    the positive ones is refined before it enters. The slopes of the positive variables, which are 0 at the solution,
    are checked after every step. If they are not 0, the inverse refines the weights. If that does not help, the inverse
    is computed anew, in O(m^3).

    Args:
        capacity: the number of variables that will be added.
        lam: ridge.
    """

    def __init__(self, capacity: int, lam: float) -> None:
        self._lam, self._size = lam, 0
        self._w_K, self._b_K, self._system_KK = np.zeros(capacity), np.zeros(capacity), np.zeros((capacity, capacity))
        # The positive variables (the first `_count` of `_which_P`), the inverse of their system and its solution.
        self._count, self._which_P = 0, np.zeros(capacity, dtype=np.int64)
        self._inverse_PP, self._goal_P = np.zeros((capacity, capacity)), np.zeros(capacity)
        self._scratch = np.empty(capacity * capacity)

    def add(self, gram_T: Array, b: float) -> Array:
        """Add one variable and solve again.

        Args:
            gram_T: inner products of the new variable with all earlier ones and, last, with itself.
            b: right-hand side of the new variable.

        Returns:
            All weights so far (T,), valid until the next call.
        """
        last, end = self._size, self._size + 1
        self._size, self._b_K[last] = end, b
        self._system_KK[last, :end] = self._system_KK[:end, last] = gram_T
        self._system_KK[last, last] += self._lam
        flat, largest = FLAT * float(np.abs(self._b_K[:end]).max()), float(self._system_KK.diagonal().max())
        w_T, repairs = self._w_K[:end], 0
        for _ in range(6 * end):  # twice the usual bound of Lawson & Hanson; two or three suffice
            slopes_T, which_P = self._slopes(), self._which_P[: self._count]
            off = float(np.abs(slopes_T[which_P]).max(initial=0))
            if repairs < REPAIRS and not off <= flat + ROUNDING * largest * float(w_T.sum()):
                repairs += 1
                if repairs >= 3:
                    self._inverse_PP[: self._count, : self._count] = np.linalg.pinv(
                        self._system_KK[np.ix_(which_P, which_P)], hermitian=True
                    )
                self._correct(slopes_T)
            else:
                slopes_T[which_P] = -np.inf
                if not self._enter(slopes_T, flat):
                    break
                repairs = 0
            self._settle()
        return w_T

    def refine(self) -> Array:
        """Correct the weights (T,) for the rounding errors of the inverse."""
        for _ in range(2):
            self._correct(self._slopes())
            self._settle()
        return self._w_K[: self._size]

    def _slopes(self) -> Array:
        """b - (A + lam I) w (T,)."""
        slopes_T: Array = (
            self._b_K[: self._size] - self._system_KK[: self._size, : self._size] @ self._w_K[: self._size]
        )
        return slopes_T

    def _correct(self, slopes_T: Array) -> None:
        """Set the positive variables to the solution that the inverse gives."""
        m, which_P = self._count, self._which_P[: self._count]
        self._goal_P[:m] = self._w_K[which_P] + self._inverse_PP[:m, :m] @ slopes_T[which_P]

    def _enter(self, slopes_T: Array, flat: float) -> bool:
        """Add the variable of steepest slope to the positive ones; return whether there is one."""
        m = self._count
        which_P, inverse_PP = self._which_P[:m], self._inverse_PP[:m, :m]
        while slopes_T[entering := int(slopes_T.argmax())] > flat:
            norm, column_P = self._system_KK[entering, entering], self._system_KK[entering, which_P]
            along_P = inverse_PP @ column_P
            if norm - column_P @ along_P < norm * NEAR:
                along_P += inverse_PP @ (column_P - self._system_KK[np.ix_(which_P, which_P)] @ along_P)
            distance = norm - column_P @ along_P  # to the span of the others, squared, ridge included
            if distance > norm * DEPENDENT:
                scaled_P, w = along_P / distance, slopes_T[entering] / distance
                self._add_outer(scaled_P, along_P)
                self._inverse_PP[m, :m] = self._inverse_PP[:m, m] = -scaled_P
                self._inverse_PP[m, m] = 1 / distance
                self._goal_P[:m] = self._w_K[which_P] - w * along_P
                self._goal_P[m], self._which_P[m] = w, entering
                self._count += 1
                return True
            slopes_T[entering] = -np.inf
        return False

    def _settle(self) -> None:
        """Move towards the solution while weights stay positive; remove those that reach zero, and repeat."""
        while True:
            which_P, goal_P = self._which_P[: self._count], self._goal_P[: self._count]
            blocking_B = np.flatnonzero(goal_P <= 0)
            if not len(blocking_B):
                self._w_K[which_P] = goal_P
                return
            old_P = self._w_K[which_P]
            reach_B = old_P[blocking_B] / np.maximum(old_P[blocking_B] - goal_P[blocking_B], 1e-300)
            least = int(reach_B.argmin())
            self._w_K[which_P] = np.maximum(old_P + reach_B[least] * (goal_P - old_P), 0)
            self._leave(int(blocking_B[least]))

    def _add_outer(self, a_P: Array, b_P: Array) -> None:
        """inverse += a b^T."""
        m = self._count
        product_PP = self._scratch[: m * m].reshape(m, m)
        self._inverse_PP[:m, :m] += np.multiply.outer(a_P, b_P, out=product_PP)

    def _leave(self, place: int) -> None:
        """Remove the positive variable at `place`; the last one takes its place."""
        last, inverse_PP = self._count - 1, self._inverse_PP[: self._count, : self._count]
        self._w_K[self._which_P[place]] = 0
        row_P = inverse_PP[place].copy()
        self._add_outer(row_P / -row_P[place], row_P)
        self._goal_P[: self._count] -= self._goal_P[place] / row_P[place] * row_P
        inverse_PP[place], self._goal_P[place] = inverse_PP[last], self._goal_P[last]
        inverse_PP[:, place] = inverse_PP[:, last]
        self._which_P[place], self._count = self._which_P[last], last


class GrowingNonNegativeLeastSquares:
    """The same for G problems in parallel, in float64 on a GPU.

    It uses the tableau of the sweep operator (Beaton 1964; Goodnight 1979). With P the positive variables and b as row
    and column 0, the tableau holds -inv(A_PP), the solution inv(A_PP) b_P, the slopes b_j - A_jP inv(A_PP) b_P and the
    Schur complement of the others. A variable enters and leaves by the same rank-one update, O(t^2). So no step needs a
    decision of the host, which would have to wait for the GPU.

    Args:
        groups: G.
        capacity: the number of variables that will be added.
        lam: ridge.
        device: of all tensors.
    """

    def __init__(self, groups: int, capacity: int, lam: float, device: torch.device) -> None:
        self.lam = lam
        self.size = 0
        self.w_GK = torch.zeros(groups, capacity, dtype=torch.float64, device=device)
        self.unsettled_G = torch.zeros(groups, dtype=torch.bool, device=device)
        """Problems that needed more rounds than `add` allowed, at least once."""
        self._tableau_GXX = self.w_GK.new_zeros(groups, capacity + 1, capacity + 1)
        self._positive_GX = torch.zeros(groups, capacity + 1, dtype=torch.bool, device=device)
        self._system_GXX = torch.zeros_like(self._tableau_GXX)  # A + lam I and b, not swept
        self._norm_GX = self.w_GK.new_zeros(groups, capacity + 1)  # its diagonal
        self._scale_G = self.w_GK.new_zeros(groups)
        self._group_G = torch.arange(groups, device=device)

    def add(self, gram_GT: Tensor, b_G: Tensor, live_G: Tensor, rounds: int) -> Tensor:
        """Add one variable to each problem and solve again.

        Args:
            gram_GT: inner products of the new variable with all earlier ones and, last, with itself.
            b_G: right-hand side of the new variable.
            live_G: bool; the other problems keep their weights from now on.
            rounds: the largest number of variables that enter or leave. A problem that needs more is marked in
                `unsettled_G`.

        Returns:
            All weights so far (G, T), valid until the next call.
        """
        self._border(gram_GT, b_G)
        tolerance_G = self._scale_G * FLAT
        # The earlier variables are solved: the active set is unchanged when the new variable enters.
        pivot_G = torch.full_like(self._group_G, self.size)
        last_G2 = self._tableau_GXX[:, self.size, [0, self.size]]
        needed_G = live_G & (last_G2[:, 0] > tolerance_G)
        needed_G &= last_G2[:, 1] > self._norm_GX[:, self.size] * DEPENDENT
        for _ in range(rounds):
            self._sweep(pivot_G, needed_G)
            pivot_G, needed_G = self._next_pivot(live_G, tolerance_G)
        self.unsettled_G |= needed_G
        return self.w_GK[:, : self.size]

    def refine(self) -> Tensor:
        """Correct the weights (G, T) for the rounding errors of the tableau."""
        end = self.size + 1
        positive_GT = self._positive_GX[:, 1:end]
        system_GXX = self._system_GXX[:, 1:end]
        for _ in range(2):
            rest_GT = system_GXX[:, :, 0] - _product(system_GXX[:, :, 1:end], self.w_GK[:, : self.size])
            change_GT = -_product(self._tableau_GXX[:, 1:end, 1:end], rest_GT.where(positive_GT, 0.0))
            self.w_GK[:, : self.size] += change_GT.where(positive_GT, 0.0)
        return self.w_GK[:, : self.size].clamp_(min=0)

    def _border(self, gram_GT: Tensor, b_G: Tensor) -> None:
        """Add the row and column of a new variable, with all earlier sweeps applied."""
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
        """Move while weights stay positive. Return the variable that must leave or enter next, and whether one must."""
        end = self.size + 1
        positive_GT, w_GT = self._positive_GX[:, 1:end], self.w_GK[:, : self.size]
        # The optimum of positive variables, the slope of the others.
        column_GT = self._tableau_GXX[:, 1:end, 0]
        goal_GT = column_GT * positive_GT
        blocking_GT = positive_GT & (goal_GT <= 0)
        ratio_GT = (w_GT / (w_GT - goal_GT).clamp_min(1e-300)).where(blocking_GT, torch.inf)
        reach_G, leaving_G = ratio_GT.min(1)
        w_GT.lerp_(goal_GT, (reach_G.clamp(max=1.0) * live_G)[:, None]).clamp_min_(0)
        blocked_G = reach_G.isfinite()
        # Squared distance to the span of the positive variables, ridge included.
        distance_GT = self._tableau_GXX.diagonal(dim1=1, dim2=2)[:, 1:end]
        open_GT = (distance_GT > self._norm_GX[:, 1:end] * DEPENDENT) & ~positive_GT
        slope_G, entering_G = column_GT.where(open_GT, -torch.inf).max(1)
        pivot_G = 1 + torch.where(blocked_G, leaving_G, entering_G)
        return pivot_G, live_G & (blocked_G | (slope_G > tolerance_G))

    def _sweep(self, pivot_G: Tensor, needed_G: Tensor) -> None:
        """Add the variable `pivot_G`, or remove it if it is positive, in the problems of `needed_G`."""
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
