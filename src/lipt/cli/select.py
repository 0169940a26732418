"""`lipt select`."""

from __future__ import annotations

from typing import Any

import click

from lipt.cli.options import output_option, print_json
from lipt.errors import UsageError


@click.command()
@click.option("--labels", required=True, type=click.Path(), help="int (N,), .npy")
@click.option("--logits", type=click.Path(), help="float (N, C), .npy")
@click.option("--features", type=click.Path(), help="float (N, D), .npy: input of the last linear layer")
@click.option("--algorithm", default="auto", show_default=True)
@click.option("--fraction", type=click.FloatRange(min=0, max=1, min_open=True), default=0.1, show_default=True)
@click.option("--balanced/--unbalanced", default=True, show_default=True, help="Split the budget over the classes.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="Option of the algorithm; repeatable.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--to", required=True, type=click.Path(), help="Parquet file to write.")
@output_option
def select(
    labels: str,
    logits: str | None,
    features: str | None,
    algorithm: str,
    fraction: float,
    balanced: bool,
    options: tuple[str, ...],
    seed: int,
    to: str,
    output: str,
) -> None:
    """Select a subset from a model's outputs, without the rest of LiPT."""
    import torch
    import yaml

    from lipt.adapters.store import open_store
    from lipt.core.selection import Candidates, Outputs
    from lipt.core.selection import select as run_selection
    from lipt.stages.choose import subset_table

    labels_N = torch.from_numpy(_load(labels)).long()
    if (logits is None) != (features is None):
        raise UsageError("--logits and --features belong together", "give both, or neither for random and stratified")
    outputs = []
    if logits is not None and features is not None:
        outputs = [
            Outputs(
                logits_NC=torch.from_numpy(_load(logits)).float(), features_ND=torch.from_numpy(_load(features)).float()
            )
        ]
    num_classes = outputs[0].logits_NC.shape[1] if outputs else int(labels_N.max()) + 1
    chosen: dict[str, Any] = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--option {text}: not of the form KEY=VALUE", "for example --option beta=0.3")
        chosen[key] = yaml.safe_load(value)
    selection = run_selection(
        algorithm,
        Candidates(labels_N=labels_N, num_classes=num_classes, outputs=outputs),
        fraction=fraction,
        seed=seed,
        balanced=balanced,
        options=chosen,
    )
    import numpy as np

    provenance = {
        "algorithm": selection.algorithm,
        "fraction": fraction,
        "seed": seed,
        "options": chosen,
        "balanced": balanced,
    }
    folder, _, name = to.rpartition("/")
    open_store(folder or ".").write(
        name, subset_table(selection, np.arange(len(labels_N)), labels_N, provenance), kind="other"
    )
    if output == "json":
        print_json({"file": to, "count": len(selection.indices_K), **provenance})
    else:
        click.echo(to)


def _load(path: str) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}", "save it with numpy.save") from None
