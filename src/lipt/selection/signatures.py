"""The names of the algorithms, and their options, for type checkers, editors and `help`.

`make reference` writes this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, overload

if TYPE_CHECKING:
    from lipt.selection.arrays import ArrayLike
    from lipt.selection.inputs.candidates import Candidates
    from lipt.selection.result import Selection

#: The algorithms.
AlgorithmName: TypeAlias = Literal[
    "auto",
    "aum",
    "ccs",
    "craig",
    "dual",
    "dyn_unc",
    "el2n",
    "facility_location",
    "forgetting",
    "glister",
    "gradmatch",
    "grand",
    "graph_cut",
    "herding",
    "k_center",
    "moderate",
    "prototypes",
    "random",
    "scores",
    "stratified",
    "uncertainty",
]

#: The options of each algorithm with their defaults, for `help(lipt.select)`.
OPTIONS = """\
ccs: score='el2n', beta=None, strata=50
craig: greedy='auto', epsilon=0.01, neighbours=64
dual: window=None, sampling='beta', c_d=4.0, concentration=15.0
dyn_unc: window=10
facility_location: metric='cosine', greedy='auto', epsilon=0.01, neighbours=64
glister: eta=None, greedy='exact', rounds=20, epsilon=0.01
gradmatch: lam=0.03, target='sum', per='class', batch_size=128
graph_cut: lam=0.5
moderate: variant='class'
prototypes: keep='hard', clusters=None
uncertainty: measure='entropy'
without options: auto, aum, el2n, forgetting, grand, herding, k_center, random, scores, stratified"""


class Select(Protocol):
    """The type of `select`: a signature for the algorithms without options, then one for each of the others."""

    @overload
    def __call__(
        self,
        algorithm: Literal[
            "auto", "aum", "el2n", "forgetting", "grand", "herding", "k_center", "random", "scores", "stratified"
        ],
        candidates: Candidates,
        *,
        fraction: float | None = None,
        k: int | None = None,
        seed: int = 0,
        balanced: bool = True,
        validation: Candidates | None = None,
        initial: ArrayLike | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> Selection: ...

    @overload
    def __call__(
        self,
        algorithm: Literal["ccs"],
        candidates: Candidates,
        *,
        fraction: float | None = None,
        k: int | None = None,
        seed: int = 0,
        balanced: bool = True,
        validation: Candidates | None = None,
        initial: ArrayLike | None = None,
        notes: Mapping[str, Any] | None = None,
        score: Literal[
            "el2n", "grand", "aum", "loss", "forgetting", "entropy", "margin", "least_confidence", "scores"
        ] = "el2n",
        beta: float | None = None,
        strata: int = 50,
    ) -> Selection: ...

    @overload
    def __call__(
        self,
        algorithm: Literal["craig"],
        candidates: Candidates,
        *,
        fraction: float | None = None,
        k: int | None = None,
        seed: int = 0,
        balanced: bool = True,
        validation: Candidates | None = None,
        initial: ArrayLike | None = None,
        notes: Mapping[str, Any] | None = None,
        greedy: Literal["auto", "lazy", "stochastic", "sparse"] = "auto",
        epsilon: float = 0.01,
        neighbours: int = 64,
    ) -> Selection: ...

    @overload
    def __call__(
        self,
        algorithm: Literal["dual"],
        candidates: Candidates,
        *,
        fraction: float | None = None,
        k: int | None = None,
        seed: int = 0,
        balanced: bool = True,
        validation: Candidates | None = None,
        initial: ArrayLike | None = None,
        notes: Mapping[str, Any] | None = None,
        window: int | None = None,
        sampling: Literal["beta", "top"] = "beta",
        c_d: float = 4.0,
        concentration: float = 15.0,
    ) -> Selection: ...

    @overload
    def __call__(
        self,
        algorithm: Literal["dyn_unc"],
        candidates: Candidates,
        *,
        fraction: float | None = None,
        k: int | None = None,
        seed: int = 0,
        balanced: bool = True,
        validation: Candidates | None = None,
        initial: ArrayLike | None = None,
        notes: Mapping[str, Any] | None = None,
        window: int = 10,
    ) -> Selection: ...

    @overload
    def __call__(
        self,
        algorithm: Literal["facility_location"],
        candidates: Candidates,
        *,
        fraction: float | None = None,
        k: int | None = None,
        seed: int = 0,
        balanced: bool = True,
        validation: Candidates | None = None,
        initial: ArrayLike | None = None,
        notes: Mapping[str, Any] | None = None,
        metric: Literal["cosine", "euclidean"] = "cosine",
        greedy: Literal["auto", "lazy", "stochastic", "sparse"] = "auto",
        epsilon: float = 0.01,
        neighbours: int = 64,
    ) -> Selection: ...

    @overload
    def __call__(
        self,
        algorithm: Literal["glister"],
        candidates: Candidates,
        *,
        fraction: float | None = None,
        k: int | None = None,
        seed: int = 0,
        balanced: bool = True,
        validation: Candidates | None = None,
        initial: ArrayLike | None = None,
        notes: Mapping[str, Any] | None = None,
        eta: float | None = None,
        greedy: Literal["exact", "r_greedy", "stochastic"] = "exact",
        rounds: int = 20,
        epsilon: float = 0.01,
    ) -> Selection: ...

    @overload
    def __call__(
        self,
        algorithm: Literal["gradmatch"],
        candidates: Candidates,
        *,
        fraction: float | None = None,
        k: int | None = None,
        seed: int = 0,
        balanced: bool = True,
        validation: Candidates | None = None,
        initial: ArrayLike | None = None,
        notes: Mapping[str, Any] | None = None,
        lam: float = 0.03,
        target: Literal["sum", "mean"] = "sum",
        per: Literal["class", "class_gradient", "batch"] = "class",
        batch_size: int = 128,
    ) -> Selection: ...

    @overload
    def __call__(
        self,
        algorithm: Literal["graph_cut"],
        candidates: Candidates,
        *,
        fraction: float | None = None,
        k: int | None = None,
        seed: int = 0,
        balanced: bool = True,
        validation: Candidates | None = None,
        initial: ArrayLike | None = None,
        notes: Mapping[str, Any] | None = None,
        lam: float = 0.5,
    ) -> Selection: ...

    @overload
    def __call__(
        self,
        algorithm: Literal["moderate"],
        candidates: Candidates,
        *,
        fraction: float | None = None,
        k: int | None = None,
        seed: int = 0,
        balanced: bool = True,
        validation: Candidates | None = None,
        initial: ArrayLike | None = None,
        notes: Mapping[str, Any] | None = None,
        variant: Literal["class", "authors"] = "class",
    ) -> Selection: ...

    @overload
    def __call__(
        self,
        algorithm: Literal["prototypes"],
        candidates: Candidates,
        *,
        fraction: float | None = None,
        k: int | None = None,
        seed: int = 0,
        balanced: bool = True,
        validation: Candidates | None = None,
        initial: ArrayLike | None = None,
        notes: Mapping[str, Any] | None = None,
        keep: Literal["hard", "easy"] = "hard",
        clusters: int | None = None,
    ) -> Selection: ...

    @overload
    def __call__(
        self,
        algorithm: Literal["uncertainty"],
        candidates: Candidates,
        *,
        fraction: float | None = None,
        k: int | None = None,
        seed: int = 0,
        balanced: bool = True,
        validation: Candidates | None = None,
        initial: ArrayLike | None = None,
        notes: Mapping[str, Any] | None = None,
        measure: Literal["entropy", "margin", "least_confidence"] = "entropy",
    ) -> Selection: ...
