"""The report's last sections: the files of the run, and what repeats and identifies it."""

import os
import platform
import sys
from collections.abc import Collection, Sequence
from importlib.metadata import version

import torch
import yaml

from lipt.flow.address import CHOSEN, CONFIG, REPORT, located_settings
from lipt.flow.outcome import Outcome
from lipt.report import document as doc
from lipt.report.document import NETWORK_CODE
from lipt.report.next_step import module_of
from lipt.runtime import Context

#: Name of the link to the weights of the selected row's network.
MODEL_LINK = "Trained network"
#: Files beside the report: name, what they are, and more about it.
_BESIDE = (
    (CHOSEN, "Chosen images", "the name of each in the source, one per line"),
    (CONFIG, "Configuration", "every setting; `lipt VERB` with it repeats the run"),
    (REPORT, "This report for programs", "all numbers, not rounded"),
)


def links_section(outcome: Outcome, folder: str, beside: Collection[str], verb: str) -> list[doc.Link]:
    """The objects that a reader may want.

    Args:
        verb: the command that made the report, `run` or `compare`.
        folder: that of the report.
        beside: names of the files that are written beside the report.
    """
    module = module_of(outcome.config.model.name)
    more = {CONFIG: f", in a folder where Python finds the module {module}"} if module else {}
    found = [
        doc.Link(name=meaning, meaning=what.replace("VERB", verb) + more.get(name, ""), key=f"{folder}/{name}")
        for name, meaning, what in _BESIDE
        if name in (*beside, REPORT)
    ]
    for title, artifact, what in (
        ("Subset", outcome.subset, "Parquet; for each candidate whether it was kept, its score and its weight"),
        (MODEL_LINK, outcome.trained.model, "weights after the last epoch; `lipt export` makes a program of them"),
        ("theta_p", outcome.merged, "weights of the pre-trained model that chose"),
    ):
        for file in artifact.files if artifact else ():
            assert artifact is not None
            found.append(doc.Link(name=title, meaning=what, key=f"{artifact.ref}/{file}"))
    return found


def provenance_section(ctx: Context, outcomes: Sequence[Outcome], seeds: Sequence[int]) -> doc.Provenance:
    """Configuration, versions and digests of a run, and the machine that writes its report.

    Args:
        outcomes: of all rows and seeds, beginning with the one that the report describes.
    """
    first = outcomes[0]
    digests = {"dataset": str(first.prepared.dataset.summary["digest"])}
    for name, artifact in (("theta_p", first.merged), ("subset", first.subset), ("model", first.trained.model)):
        if artifact is not None:
            digests |= {f"{name}/{file}": entry.sha256 for file, entry in artifact.files.items()}
    if ctx.code:
        digests[NETWORK_CODE] = ctx.code
    notes = list(dict.fromkeys(note for outcome in outcomes for note in _lost(outcome, len(seeds) > 1)))
    return doc.Provenance(
        config_yaml=yaml.safe_dump(located_settings(ctx.config), sort_keys=False, allow_unicode=True),
        versions=_versions(),
        digests=digests,
        notes=notes,
        seeds=list(seeds),
        host={
            "device": torch.cuda.get_device_name() if ctx.device.type == "cuda" else "CPU",
            "cpu threads": str(torch.get_num_threads()),
            "cpus": str(os.cpu_count()),
            # On it depends how sums round, and so the accuracies in their last digits.
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "platform": platform.platform(),
        },
    )


def _lost(outcome: Outcome, several_seeds: bool) -> list[str]:
    """A sentence for each lost jigsaw, and for each lost model of `score.runs`."""
    config = outcome.config
    seed = f"seed {config.seed}: " if several_seeds else ""
    model = f"{seed}{config.score.model} model"
    return [
        *(f"{seed}jigsaw {index} was lost: {message}" for index, message in outcome.failures.items()),
        *(f"{model} {index} was lost: {message}" for index, message in outcome.prepared.failures.items()),
    ]


def _versions() -> dict[str, str]:
    return {"python": sys.version.split()[0]} | {
        name: version(name) for name in ("lipt", "torch", "torchvision", "numpy")
    }
