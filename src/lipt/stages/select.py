"""Select: choose the subset for the main training."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from lipt.config import Config, Select
from lipt.errors import UsageError
from lipt.runtime import Artifact, Attempt, Context, Stage
from lipt.runtime.algorithm import algorithm_label, needs_of, running
from lipt.runtime.dataset import count_candidates, open_dataset, split_positions
from lipt.selection import Candidates, Requirements, Selection
from lipt.selection import select as run_selection
from lipt.selection.api import checked
from lipt.selection.auto import AUTO
from lipt.selection.lost import remark_on_lost
from lipt.selection.reliability import Reliability, reliability
from lipt.stages.score import read_scores

SUBSET = "subset.parquet"


def _place(scores: Artifact) -> tuple[str, int]:
    """Where a block of scores stands among all. In a dry run it has only an address, and stays where it is."""
    block = scores.settings.get("block", {"of": "", "start": 0})
    return block["of"], block["start"]


def select(ctx: Context, dataset: Artifact, scores: Sequence[Artifact] = ()) -> Stage:
    """Choose the subset. File: a table with one row per candidate (position, label, score, rank, weight).

    Args:
        scores: the outputs of theta_p for all candidates: the artifacts of `score`, one per block, in any order. Empty
            if the algorithm needs none (random, stratified).

    Raises:
        UsageError: `scores` are not all blocks, or those of other images.
    """
    scores = sorted(scores, key=_place)
    settings = running(ctx.config, count_candidates(ctx, dataset))
    needs = needs_of(ctx.config.model_copy(update={"select": settings}))

    def body(attempt: Attempt) -> dict[str, Any]:
        data = open_dataset(attempt, dataset)
        _, positions = split_positions(ctx, data)
        labels_N = torch.from_numpy(data.index("train").label[positions].astype(np.int64))
        num_classes = len(data.manifest.classes)
        candidates, validation = Candidates(labels_N=labels_N, num_classes=num_classes), None
        if scores:
            candidates = read_scores(attempt, scores, "candidates")
            if needs.validation:
                validation = read_scores(attempt, scores, "validation")
        if not torch.equal(candidates.labels_N, labels_N):
            raise UsageError(
                f"the scores are those of other images than the {len(positions):,} candidates",
                "pass every block of `score`, made with the same data and `seed`",
            )
        notes = {
            "dataset": data.manifest.digest,
            "scores": [block.ref for block in scores],
            "requested": settings.model_dump(mode="json"),
        }
        selection = replace(
            apply(settings, candidates, validation, seed=ctx.seed("select")),
            positions_N=torch.from_numpy(positions),
            sources_N=data.names("train").take(pa.array(positions)),
            notes=notes,
        )
        kept_C = torch.bincount(labels_N[selection.indices_K], minlength=num_classes).tolist()
        sizes_C = torch.bincount(labels_N, minlength=num_classes).tolist()
        numbered, named = (
            remark_on_lost(sizes_C, kept_C, len(selection), names) for names in (None, data.manifest.classes)
        )
        for remark in selection.remarks:  # the selection itself knows only numbers of classes
            attempt.reporter.warn(named if remark == numbered else remark)
        attempt.put(SUBSET, selection.to_parquet(), kind="other")
        sure = _reliability(settings, selection, candidates, needs)
        return {
            "count": len(selection.indices_K),
            "candidates": len(positions),
            "algorithm": selection.algorithm,
            "options": dict(selection.options),
            "weighted": len(selection.weights_K.unique()) > 1,
            "kept_per_class": kept_C,
            "candidates_per_class": sizes_C,
            **({"reliability": sure.value, "halved": sure.halved} if sure else {}),
        }

    chosen = ctx.settings(select=settings.model_dump(mode="json"), view=ctx.view())
    label = f"select {taken(ctx.config, chosen)}"
    return Stage(ctx=ctx, name="select", settings=chosen, inputs=[dataset, *scores], body=body, label=label)


def taken(config: Config, settings: Mapping[str, Any]) -> str:
    """The algorithm for people, with the one that `auto` takes.

    Args:
        settings: of the stage `select`.
    """
    ran = str(settings["select"]["algorithm"])
    return algorithm_label(config, ran) if config.select.algorithm == AUTO else ran


def apply(settings: Select, candidates: Candidates, validation: Candidates | None, *, seed: int) -> Selection:
    """Run the configured algorithm on these candidates."""
    return run_selection(
        checked(settings.algorithm, settings.options),
        candidates,
        fraction=settings.fraction,
        seed=seed,
        balanced=settings.balanced,
        validation=validation,
        **settings.options,
    )


def _reliability(
    settings: Select, selection: Selection, candidates: Candidates, needs: Requirements
) -> Reliability | None:
    """The split-half reliability of the scores of this selection; None if it has no scores, or a single scorer."""
    if selection.scores_N is None:
        return None
    # What ran, because `auto` may choose another algorithm for the fewer epochs of a half.
    settings = settings.model_copy(update={"algorithm": selection.algorithm, "options": dict(selection.options)})

    def score(half: Candidates) -> Tensor | None:
        return apply(settings, half, None, seed=selection.seed).scores_N

    return reliability(candidates, needs, score, balanced=settings.balanced)


def read_subset(attempt: Attempt, subset: Artifact, *, sources: bool = False) -> Selection:
    """A stored selection. `sources` adds the candidates' names."""
    data = attempt.read_for_all(subset, SUBSET, kind="other")
    return Selection.from_parquet(data, origin=f"{subset.ref}/{SUBSET}", sources=sources)
