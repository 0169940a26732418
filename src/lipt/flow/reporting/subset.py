"""The report's section about the subset: classes, scores and example images."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from lipt.data.chunks import Dataset, read_samples
from lipt.data.decoding import decode_stored, encode_png
from lipt.flow.outcome import Outcome
from lipt.report.subset import Example, Histogram, Subset
from lipt.runtime import Artifact, Attempt
from lipt.runtime.dataset import open_dataset
from lipt.stages.select import SUBSET, read_subset

_EXAMPLES = 40
_BINS = 30
_THUMBNAIL = (96, 96)
_SCORES = {
    "el2n": "EL2N",
    "grand": "GraNd",
    "dual": "DUAL",
    "aum": "negative AUM (area under the margin)",
    "dyn_unc": "deviation of the label's probability",
    "loss": "loss",
    "forgetting": "forgetting events",
    "scores": "your own scores",
    "entropy": "entropy of the prediction",
    "margin": "1 − first + second probability",
    "moderate": "closeness to the median distance",
    "prototypes": "cosine distance to the prototype, negative with keep: easy",
    "least_confidence": "1 − first probability",
}


def subset_section(attempt: Attempt, outcome: Outcome) -> Subset:
    """The section about an outcome's subset. Reads the selection and `_EXAMPLES` images on each side."""
    dataset = open_dataset(attempt, outcome.prepared.dataset)
    selection = read_subset(attempt, outcome.subset, sources=True)
    table = selection.table()
    table = table.select(["score", "rank", "weight", "position", "source"])
    classes = list(dataset.manifest.classes)
    summary = outcome.subset.summary
    kept = pa.compute.is_valid(table["rank"])
    scored = table["score"].null_count < len(table)
    weights = table.filter(kept)["weight"].to_numpy()
    return Subset(
        count=summary["count"],
        class_names=classes,
        kept_per_class=summary["kept_per_class"],
        candidates_per_class=summary["candidates_per_class"],
        score_name=score_name(selection.algorithm, selection.options) if scored else "",
        score_histogram=_histogram(table["score"].to_numpy(), kept.to_numpy()) if scored else None,
        kept_examples=_examples(dataset, table.filter(kept).sort_by("rank"), classes),
        dropped_examples=_examples(dataset, table.filter(pa.compute.invert(kept)), classes),
        weights_used=outcome.config.train.use_weights and bool(len(weights)) and bool(np.ptp(weights) > 0),
        digest=outcome.subset.files[SUBSET].sha256,
        ref=outcome.subset.ref,
    )


def chosen_names(attempt: Attempt, subset: Artifact) -> bytes:
    """The names of the chosen images in their source, one per line, in the order in which training reads them.

    Empty if nothing was left out, or if a name does not fit on a line.
    """
    if subset.summary["count"] == subset.summary["candidates"]:
        return b""
    table = read_subset(attempt, subset, sources=True).table()
    names = table.filter(pa.compute.is_valid(table["rank"])).sort_by("position")["source"].to_pylist()
    return b"" if any("\n" in name or "\r" in name for name in names) else "".join(f"{n}\n" for n in names).encode()


def score_name(algorithm: str, options: Mapping[str, Any]) -> str:
    """The name of the stored scores: the score that the options choose, or the algorithm's own."""
    name = str(options.get("score") or options.get("measure") or algorithm)
    return _SCORES.get(name, name)


def _histogram(scores_N: Any, kept_N: Any) -> Histogram | None:
    scores_N = scores_N.astype(np.float64)  # float32 may have fewer than `_BINS` numbers between the scores
    finite = np.isfinite(scores_N)
    if not finite.any():
        return None
    edges = np.linspace(scores_N[finite].min(), scores_N[finite].max(), _BINS + 1)
    if not (np.diff(edges) > 0).all():  # all scores are equal, or nearly so
        return None
    counts = [np.histogram(scores_N[finite & chosen], bins=edges)[0].tolist() for chosen in (kept_N, ~kept_N)]
    return Histogram(edges=edges.tolist(), kept=counts[0], dropped=counts[1])


def _examples(dataset: Dataset, table: pa.Table, classes: list[str]) -> list[Example]:
    """At most `_EXAMPLES` samples, spread evenly over the rows of `table`."""
    if not len(table):
        return []
    rows = np.unique(np.linspace(0, len(table) - 1, min(_EXAMPLES, len(table))).astype(np.int64))
    chosen = table.take(pa.array(rows))
    scores = dict(zip(chosen["position"].to_pylist(), chosen["score"].to_pylist(), strict=True))
    samples = {
        sample.position: sample for sample in read_samples(dataset.ranges_of("train", list(scores)), dataset.read)
    }
    return [
        Example(
            png_base64=_thumbnail(samples[position].image, f"sample {position}"),
            label=classes[samples[position].label],
            score=score,
            source=source,
        )
        for (position, score), source in zip(scores.items(), chosen["source"].to_pylist(), strict=True)
    ]


def _thumbnail(data: bytes, name: str) -> str:
    image = Image.fromarray(decode_stored(data, name))
    image.thumbnail(_THUMBNAIL)
    return base64.b64encode(encode_png(image)).decode()
