"""The checks of this machine for `lipt doctor`: packages, device, workspace, data, model and selection."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec
from uuid import uuid4

from lipt.adapters.cluster.patience import UnreachableError
from lipt.adapters.cluster.preflight import UnknownError
from lipt.adapters.store import open_store
from lipt.adapters.store.file import FileStore
from lipt.config import Config
from lipt.errors import LiptError, RunError

if TYPE_CHECKING:
    from lipt.flow.checks.facts import Facts
    from lipt.runtime.context import Context

P = ParamSpec("P")
#: (True: ok, False: failed, None: could not be checked; the finding)
CheckResult = tuple[bool | None, str]


def run_check(check: Callable[P, str], *args: P.args, **kwargs: P.kwargs) -> CheckResult:
    """The result of a check.

    Raises:
        UnreachableError: the cluster does not answer, so the other checks would wait for it in vain.
    """
    try:
        return True, check(*args, **kwargs)
    except UnknownError as error:
        return None, str(error)
    except UnreachableError:
        raise
    except LiptError as error:
        return False, str(error)


def check_machine(config: Config) -> dict[str, CheckResult]:
    """Whether the configuration can run here: a result for each check."""
    from lipt.runtime.context import Context

    context = cache(partial(Context.of, config))  # one, so that the images are listed once; a check reports its error
    found: list[Facts] = []
    findings = {
        "packages": run_check(packages, config),
        "device": run_check(_device, config),
        "workspace": run_check(workspace, config),
        "data": run_check(_data, context, found),
    }
    facts = found[0] if found else _published(config)
    findings |= {"model": run_check(model, config, facts), "selection": run_check(selection, config, facts)}
    if all(ok for ok, _ in findings.values()):
        findings["comparison"] = run_check(_comparison, context)
    return findings


def packages(_config: Config) -> str:
    """The versions of Python and of the packages that matter most."""
    return f"python {sys.version.split()[0]}, " + ", ".join(
        f"{name} {version(name)}" for name in ("lipt", "torch", "torchvision")
    )


def _device(config: Config) -> str:
    import torch

    if config.device == "cuda" and not torch.cuda.is_available():
        raise RunError("device: cuda, but torch sees no GPU", "set device: auto, or check the driver with nvidia-smi")
    if config.device != "cpu" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"CPU, threads: {torch.get_num_threads()}, cores: {os.cpu_count()}"


def workspace(config: Config) -> str:
    """Write, read back, list and delete a probe: the rights that a run needs."""
    from lipt.report.numbers import format_bytes

    store = open_store(config.workspace)
    folder = Path(store.uri.removeprefix("file://")) if store.uri.startswith("file://") else None
    new = [each for each in (folder, *folder.parents) if not os.path.exists(each)] if folder else []
    probe = f"doctor/probe-{uuid4().hex}"  # not the process: in every pod it has the same number
    store.write(probe, b"probe", kind="other")
    try:
        if store.read(probe, kind="other") != b"probe" or probe not in store.list("doctor"):
            raise RunError(f"{store.uri} does not return the written bytes", "check that no other program writes there")
    finally:
        store.delete(probe)
    free = f", {format_bytes(_free_bytes(folder))} free" if folder else ""
    with suppress(OSError):  # another process may have begun a run in it
        for each in new:
            each.rmdir()
    return f"{store.uri}: write, read, list, delete{free}"


def _free_bytes(folder: Path) -> int:
    """Free space for this user on the disk of a folder, which need not exist yet."""
    return shutil.disk_usage(next(each for each in (folder, *folder.parents) if os.path.exists(each))).free


def _data(context: Callable[[], Context], facts: list[Facts]) -> str:
    """Adds what it learns to `facts`, also if images are damaged."""
    from lipt.data.sources import check_one_size
    from lipt.flow.checks.facts import Facts
    from lipt.runtime.artifact import CHUNKS
    from lipt.runtime.chunk_store import is_chunk_store
    from lipt.runtime.dataset import listing, open_apart
    from lipt.stages.ingest import named_store

    ctx = context()
    data = ctx.config.data
    if is_chunk_store(data):
        facts.append(Facts.of(data))
        found = named_store(data)[0].summary
        return f"{data.source}: {found['train']:,} training images, {len(found['classes'])} classes"
    source = open_apart(data, ctx.workspace.store.at(CHUNKS))
    facts.append(Facts.of(data, partial(listing, ctx, source)))  # refuses what a run could not divide
    source.read("train", 0)  # a sign of what ingestion could not read
    if data.image_size is None:
        check_one_size(source)
    _check_space(ctx, source.num_bytes)
    return f"{source.name}: {len(source.splits['train']):,} images, {len(source.classes)} classes, not decoded yet"


def _check_space(ctx: Context, num_bytes: int) -> None:
    """
    Raises:
        RunError: the disk of the workspace cannot take the images, and they are not in the workspace yet.
    """
    from lipt.report.numbers import format_bytes
    from lipt.runtime.artifact import CHUNKS
    from lipt.stages.ingest import ingest

    store = ctx.workspace.store
    if not isinstance(store, FileStore) or (free := _free_bytes(store.root)) >= num_bytes:
        return
    if free + sum(store.at(CHUNKS).sizes().values()) >= num_bytes:  # of an ingest that was stopped
        return
    if ingest(ctx).find() is None:
        raise RunError(
            f"{store.root}: {format_bytes(free)} free, the images need about {format_bytes(num_bytes)}",
            "free space, or set `workspace` to a folder on another disk",
        )


def model(config: Config, facts: Facts | None) -> str:
    """Checks that the network and its proxy can be built, for these images if they are known."""
    from lipt.flow.checks.model import check_model, check_proxy

    weights = check_model(config, facts)
    classes = f"{facts.classes} classes" if facts else "10 classes, as those of the data are not known"
    found = f"{config.model.name}: {weights:,} parameters at {classes}"
    if config.score.proxy:
        found += f"; the proxy {config.of_scorer().model.name}: {check_proxy(config, facts):,}"
    return found


def selection(config: Config, facts: Facts | None) -> str:
    """Checks the algorithm, its options, and that there are enough images for shards and subset."""
    from lipt.flow.checks.validation import problems, raise_all
    from lipt.report.numbers import format_budget
    from lipt.runtime.algorithm import algorithm_label

    raise_all(problems(config, facts))
    kept, per_epoch = config.select.fraction, config.train.epoch_fraction or config.select.fraction
    drawn = "" if config.train.draw == "uniform" else f" ({config.train.draw})"
    lost, enough = facts.classes_without_images(config) if facts else ([], 0.0)
    warning = ""
    if lost:
        named = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
        of_each = "" if len(lost) == 1 else " of each"
        remedy = f": select.fraction={enough:g} keeps one{of_each}" if enough < 1 else ", as so few are there"
        which = f"class {named} gets" if len(lost) == 1 else f"classes {named} get"
        warning = f"; warning: {which} no image at {format_budget(kept)}{remedy}"
    label = algorithm_label(config)
    return f"{label}, {format_budget(kept)} kept, {format_budget(per_epoch)} per epoch{drawn}{warning}"


def _published(config: Config) -> Facts | None:
    """What is known of a published data set that cannot be downloaded; the check `data` then gives the reason."""
    from lipt.data.sources import recognise
    from lipt.flow.checks.facts import Facts

    try:
        return Facts.of(config.data) if recognise(config.data.source, config.data.format).published else None
    except LiptError:
        return None


def _comparison(context: Callable[[], Context]) -> str:
    """Checks `lipt compare` too. A run can work even if it fails."""
    from lipt.flow.checks.validation import check_comparison

    try:
        chosen = check_comparison(context())
    except LiptError as error:
        raise UnknownError(f"`lipt compare` would fail: {error.message}", error.remedy) from None
    return f"{len(chosen)} variants, {len(context().config.compare.seeds)} seeds"
