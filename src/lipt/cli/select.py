"""`lipt select`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lipt.cli.options import Amount, check_target, output_option, parse_pairs, print_json
from lipt.cli.suggestions import algorithms, completes
from lipt.errors import UsageError

if TYPE_CHECKING:
    from lipt.selection import Candidates

_BLOCK = ("labels", "logits", "features")


@click.command()
@click.option("--labels", type=click.Path(), help="Labels: int (N,), .npy.")
@click.option(
    "--logits",
    multiple=True,
    type=click.Path(),
    help="Logits: float (N, C), .npy; repeatable, one per model.",
)
@click.option(
    "--features",
    multiple=True,
    type=click.Path(),
    help="Inputs of the last linear layer: float (N, D), .npy; repeatable, one per model.",
)
@click.option(
    "--outputs",
    multiple=True,
    type=click.Path(),
    metavar="BLOCK",
    help="Instead of these three: a .safetensors block with labels, and logits, features or both; repeatable, in the "
    "order of the candidates.",
)
@click.option(
    "--validation",
    multiple=True,
    type=click.Path(),
    metavar="BLOCK",
    help="Block of held-out samples, for glister; repeatable.",
)
@click.option(
    "--scores",
    type=click.Path(),
    help="Your own scores: (N,), .npy. The algorithm `scores` keeps the highest; `ccs` uses them with score=scores.",
)
@click.option(
    "--initial",
    type=click.Path(),
    help="Samples that are selected already: positions (I,), .npy, or a .parquet file of `lipt select` or of a run.",
)
@click.option(
    "--algorithm",
    default="auto",
    show_default=True,
    help="Name of the selection algorithm, such as ccs.",
    shell_complete=completes(algorithms),
)
@click.option(
    "--fraction",
    type=Amount(min=0, max=1, min_open=True),
    help="Share of the samples to keep. Default without --k: 0.05, as in a configuration.",
)
@click.option("--k", type=click.IntRange(min=1), help="Number of samples to keep, instead of --fraction.")
@click.option("--balanced/--unbalanced", default=True, show_default=True, help="Split the budget over the classes.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the algorithm, such as score=aum; repeatable.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--note",
    "notes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Stored in the file's provenance, such as model=resnet18; repeatable.",
)
@click.option("--to", required=True, type=click.Path(), help="Parquet file to write; Selection.load reads it.")
@output_option
def select(
    labels: str | None,
    logits: tuple[str, ...],
    features: tuple[str, ...],
    outputs: tuple[str, ...],
    validation: tuple[str, ...],
    scores: str | None,
    initial: str | None,
    algorithm: str,
    fraction: float | None,
    k: int | None,
    balanced: bool,
    options: tuple[str, ...],
    seed: int,
    notes: tuple[str, ...],
    to: str,
    output: str,
) -> None:
    """Select a subset from a model's outputs, without the rest of LiPT."""
    from dataclasses import replace

    from lipt.config import Select
    from lipt.selection import Candidates
    from lipt.selection import select as run_selection
    from lipt.selection.api import checked
    from lipt.selection.arrays import as_tensor
    from lipt.selection.table import check_ending

    given = (labels, scores, initial, *logits, *features, *outputs, *validation)
    check_target("--to", to, filter(None, given))
    check_ending(to, "--to")
    if fraction is not None and k is not None:
        raise UsageError("--fraction and --k both say how many samples to keep", "give one of them")
    if fraction is None and k is None:
        fraction = Select().fraction
    if not (labels or outputs):
        raise UsageError(
            "no candidates: neither --labels nor --outputs is given",
            "give --labels with --logits, --features or --scores; or give --outputs",
        )
    if outputs and (labels or logits or features):
        raise UsageError(
            "the candidates come either from --labels, --logits and --features, or from --outputs",
            "give one of the two",
        )
    if labels:
        candidates = Candidates.of(
            _array(labels), logits=[_array(path) for path in logits], features=[_array(path) for path in features]
        )
    else:
        candidates = _candidates(outputs)
    if scores:
        candidates = replace(candidates, scores_N=as_tensor(_array(scores), "scores"))
    chosen = {key: _parsed(key, value) for key, value in parse_pairs("--option", options, once=True).items()}
    selection = run_selection(
        checked(algorithm, chosen),
        candidates,
        fraction=fraction,
        k=k,
        seed=seed,
        balanced=balanced,
        validation=_candidates(validation) if validation else None,
        initial=_initial(initial) if initial else None,
        notes=parse_pairs("--note", notes, once=True),
        **chosen,
    )
    for remark in selection.remarks:
        click.echo(f"lipt: warning: {remark}", err=True)
    if "://" in to:
        from lipt.adapters.store import open_store

        folder, _, name = to.rpartition("/")
        open_store(folder).write(name, selection.to_parquet(), kind="other")
    else:
        selection.save(to)
    if output == "json":
        found = {"file": to, "count": len(selection.indices_K), "remarks": list(selection.remarks)}
        print_json(found | selection.provenance)
    else:
        click.echo(f"lipt: {len(selection)} of {len(candidates):,} samples, by {selection.algorithm}", err=True)
        click.echo(to)


def _parsed(key: str, value: str) -> Any:
    """The value, parsed as YAML."""
    from lipt.config import read_yaml

    return read_yaml(value, f"the value of --option {key}")[0]


def _initial(path: str) -> Any:
    """Positions in the candidates, which are the data set: the candidates of a run may be a part of it."""
    from lipt.selection import Selection

    return Selection.load(path).positions_K if path.endswith(".parquet") else _array(path)


def _array(path: str) -> Any:
    """Memory-mapped: only the parts that an algorithm reads use memory."""
    import numpy as np

    try:
        return np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror or error}", "name a .npy file that you may read"
        ) from None
    except ValueError as error:
        raise UsageError(f"cannot read {path}: {error}", "save it with numpy.save") from None


def _candidates(paths: tuple[str, ...]) -> Candidates:
    """All blocks in order; their outputs are read when the algorithm needs them."""
    import torch

    from lipt.selection import Candidates, Outputs, StoredOutputs
    from lipt.selection.arrays import as_labels
    from lipt.selection.inputs.candidates import count_classes

    labels, shapes = [], []
    for path in paths:
        block = _block(path)
        labels.append(as_labels(block["labels"]))
        found = {name: tuple(tensor.shape) for name, tensor in block.items()}
        shapes.append(found)
        expected = {name: found["labels"][:1] + shape[1:] for name, shape in shapes[0].items()}
        if found != expected:
            raise UsageError(
                f"{path} has tensors of {_shapes(found)}, expected {_shapes(expected)}",
                "a block has one row per label, and all blocks are of one model",
            )

    def read(index: int) -> list[Outputs]:
        block, nothing = _block(paths[index]), torch.empty(len(labels[index]), 0)
        return [Outputs(logits_NC=block.get("logits", nothing), features_ND=block.get("features", nothing))]

    labels_N = torch.cat(labels)
    stored = StoredOutputs(
        models=1,
        sizes=[len(each) for each in labels],
        read=read,
        logits="logits" in shapes[0],
        features="features" in shapes[0],
    )
    classes = read(0)[0].num_classes if stored.logits else count_classes(labels_N)
    return Candidates(labels_N=labels_N, num_classes=classes, stored=stored)


def _block(path: str) -> dict[str, Any]:
    """Its tensors, memory-mapped."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            there = [name for name in _BLOCK if name in file.keys()]  # noqa: SIM118 - it is no dict
            if "labels" in there and len(there) > 1:
                return {name: file.get_tensor(name) for name in there}
            why = "it has no tensor 'labels'" if "labels" not in there else "it has neither logits nor features"
    except (SafetensorError, OSError) as error:
        why = str(error)
    raise UsageError(f"cannot read {path}: {why}", "save labels, and logits, features or both, with safetensors")


def _shapes(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())
