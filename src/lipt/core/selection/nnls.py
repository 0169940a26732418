"""Non-negative least squares on a support that grows by one variable at a time."""

from __future__ import annotations

import torch
from torch import Tensor


class GrowingNonNegativeLeastSquares:
    """The minimiser w >= 0 of w^T (G + lam I) w - 2 b^T w, kept exact while variables are added.

    Lawson & Hanson's active set method, warm-started. The inverse of the system of the positive variables is bordered
    when one enters and shrunk when one leaves, O(t^2) each, in float64 on the CPU.

    Args:
        capacity: the number of variables that will be added.
        lam: ridge.
    """

    #: A variable this close (squared relative distance) to the span of the positive ones is not let in.
    DEPENDENT = 1e-8

    def __init__(self, capacity: int, lam: float) -> None:
        self.lam = lam
        self.size = 0
        self.w_K = torch.zeros(capacity, dtype=torch.float64)
        self._gram_KK = torch.zeros(capacity, capacity, dtype=torch.float64)
        self._b_K = torch.zeros(capacity, dtype=torch.float64)
        self._positive = torch.empty(0, dtype=torch.int64)
        self._inverse_PP = torch.empty(0, 0, dtype=torch.float64)
        self._dependent: set[int] = set()

    def add(self, gram_T: Tensor, b: float) -> Tensor:
        """Add one variable and solve again.

        Args:
            gram_T: its inner products with all variables so far and, last, with itself.
            b: its right-hand side.

        Returns:
            All weights so far (T,), valid until the next call.
        """
        t = self.size
        self._gram_KK[t, : t + 1] = self._gram_KK[: t + 1, t] = gram_T
        self._gram_KK[t, t] += self.lam
        self._b_K[t] = b
        self.size += 1
        for _ in range(3 * self.size):  # the usual bound of Lawson & Hanson; one or two rounds suffice
            entering = self._violated()
            if entering is None:
                break
            self._enter(entering)
            self._descend()
        return self.w_K[: self.size]

    def _violated(self) -> int | None:
        """The zero variable that would gain most from being positive, if any."""
        zero = [i for i in (self.w_K[: self.size] == 0).nonzero().flatten().tolist() if i not in self._dependent]
        if not zero:
            return None
        slope = self._b_K[zero] - self._gram_KK[zero, : self.size] @ self.w_K[: self.size]
        best = int(slope.argmax())
        return zero[best] if slope[best] > 1e-10 * self._b_K.abs().max() else None

    def _enter(self, i: int) -> None:
        """Border the inverse by variable i, unless it depends on the others."""
        g_P = self._gram_KK[i, self._positive]
        u_P = self._inverse_PP @ g_P
        pivot = self._gram_KK[i, i] - g_P @ u_P
        if pivot <= self.DEPENDENT * self._gram_KK[i, i]:
            self._dependent.add(i)
            return
        p = len(u_P)
        inverse = torch.empty(p + 1, p + 1, dtype=torch.float64)
        torch.addr(self._inverse_PP, u_P, u_P, alpha=float(1 / pivot), out=inverse[:p, :p])
        inverse[:p, p] = inverse[p, :p] = -u_P / pivot
        inverse[p, p] = 1 / pivot
        self._inverse_PP = inverse
        self._positive = torch.cat([self._positive, torch.tensor([i])])

    def _leave(self, q: int) -> None:
        """Remove the q-th positive variable from the inverse."""
        keep = torch.arange(len(self._positive)) != q
        column_P = self._inverse_PP[keep, q]
        self._inverse_PP = torch.addr(
            self._inverse_PP[keep][:, keep], column_P, column_P, alpha=-1 / float(self._inverse_PP[q, q])
        )
        self._positive = self._positive[keep]
        self._dependent.clear()

    def _descend(self) -> None:
        """Move to the optimum of the positive variables, dropping those that reach zero on the way."""
        while len(self._positive):
            current_P = self.w_K[self._positive]
            optimum_P = self._inverse_PP @ self._b_K[self._positive]
            if bool((optimum_P > 0).all()):
                self.w_K[self._positive] = optimum_P
                return
            blocking_P = optimum_P <= 0
            ratio_P = torch.where(blocking_P, current_P / (current_P - optimum_P).clamp_min(1e-300), torch.inf)
            q = int(ratio_P.argmin())
            current_P += ratio_P[q] * (optimum_P - current_P)
            current_P[q] = 0
            self.w_K[self._positive] = current_P.clamp_min_(0)
            self._leave(q)
