"""Non-negative least squares to which variables are added one at a time."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

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
