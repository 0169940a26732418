"""`lipt doctor`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version

import click

from lipt.cli.options import config_options, output_option, print_json
from lipt.config import Config, load_config
from lipt.errors import LiptError, RunError

Check = Callable[[Config], str]


@click.command()
@config_options
@output_option
def doctor(config_path: str, overrides: tuple[str, ...], output: str) -> None:
    """Check that CONFIG can run here: packages, device, workspace rights, data, model; failures name the remedy."""
    config = load_config(config_path, list(overrides))
    checks: dict[str, Check] = {
        "packages": _packages,
        "device": _device,
        "workspace": _workspace,
        "data": _data,
        "model": _model,
        "selection": _selection,
    }
    findings = {name: _outcome(check, config) for name, check in checks.items()}
    if output == "json":
        print_json({name: {"ok": ok, "finding": text} for name, (ok, text) in findings.items()})
    else:
        for name, (ok, text) in findings.items():
            click.echo(f"{'ok  ' if ok else 'FAIL'}  {name:<10} {text}")
    if not all(ok for ok, _ in findings.values()):
        sys.exit(RunError.exit_code)


def _outcome(check: Check, config: Config) -> tuple[bool, str]:
    try:
        return True, check(config)
    except LiptError as error:
        return False, str(error)


def _packages(_config: Config) -> str:
    return f"python {sys.version.split()[0]}, " + ", ".join(
        f"{name} {version(name)}" for name in ("lipt", "torch", "torchvision")
    )


def _device(config: Config) -> str:
    import torch

    if config.device == "cuda" and not torch.cuda.is_available():
        raise RunError("device: cuda, but torch sees no GPU", "set device: auto, or check the driver with nvidia-smi")
    if config.device != "cpu" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"CPU, {torch.get_num_threads()} threads of {os.cpu_count()} cores"


def _workspace(config: Config) -> str:
    """Write, read back, list and delete a probe: the rights that a run needs."""
    from lipt.adapters.store import open_store

    store = open_store(config.workspace)
    probe = f"doctor/probe-{os.getpid()}"
    store.write(probe, b"probe", kind="other")
    try:
        if store.read(probe, kind="other") != b"probe" or probe not in store.list("doctor"):
            raise RunError(f"{store.uri} does not return what was written", "check that nothing else writes there")
    finally:
        store.delete(probe)
    free = (
        f", {shutil.disk_usage(store.uri.removeprefix('file://')).free / 1e9:.0f} GB free"
        if store.uri.startswith("file://")
        else ""
    )
    return f"{store.uri}: write, read, list, delete{free}"


def _data(config: Config) -> str:
    from lipt.adapters.store import DatasetFiles, open_store
    from lipt.core.chunks import Dataset
    from lipt.core.sources import open_source
    from lipt.stages.ingest import is_chunk_store

    if is_chunk_store(config.data):
        manifest = Dataset(DatasetFiles(open_store(config.data.source)).read).manifest
        return (
            f"{config.data.source}: {manifest.splits['train'].count:,} training images, {len(manifest.classes)} classes"
        )
    source = open_source(config.data.source, config.data.format)
    return f"{source.name}: {len(source.splits['train']):,} images, {len(source.classes)} classes"


def _model(config: Config) -> str:
    from lipt.core.nets import build_model

    model = build_model(
        config.model.name, num_classes=10, seed=0, width=config.model.width, classifier=config.model.classifier
    )
    return (
        f"{config.model.name}: {sum(parameter.numel() for parameter in model.parameters()):,} parameters at 10 classes"
    )


def _selection(config: Config) -> str:
    from lipt.core.selection import requirements
    from lipt.stages.choose import check_forgetting

    requirements(config.select.algorithm)
    check_forgetting(config)
    kept, per_epoch = config.select.fraction, config.train.epoch_fraction or config.select.fraction
    return f"{config.select.algorithm}, {kept:.1%} kept, {per_epoch:.1%} per epoch"
