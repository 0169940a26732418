"""`lipt pipeline`."""

from pathlib import Path

import click

from lipt.cli.packaged import copy_out, is_named, packaged
from lipt.cli.suggestions import completes

#: name -> what it is; `manifests` is a folder, the others are files of `pipelines/`.
_EXPORTS = {
    "lipt": "The Kubeflow pipeline that selects, trains, and writes a report.",
    "ingest": "The Kubeflow pipeline that writes images into a chunk store.",
    "compare": "The Kubeflow pipeline that compares variants over several seeds.",
    "manifests": "The Kubernetes manifests: storage, rights, Argo's WorkflowTemplate.",
}


@click.group()
def pipeline() -> None:
    """Write compiled pipelines, or the manifests."""


@pipeline.command(short_help="Write a pipeline, or the manifests.", epilog="Example: lipt pipeline export lipt")
@click.argument("name", required=False, shell_complete=completes(lambda: _EXPORTS))
def export(name: str | None) -> None:
    """Write a compiled pipeline, or the manifests, into the current folder. Without NAME, list them.

    Kubeflow takes it with `kfp pipeline create -p lipt lipt.yaml`.
    """
    if is_named(name, _EXPORTS, "pipeline"):
        source = packaged("manifests") if name == "manifests" else packaged("pipelines") / f"{name}.yaml"
        copy_out(source, Path(source.name))
        click.echo(source.name)
