"""The speeds of this machine: measured once, then kept in the workspace for the plans that need the same ones.

    WORKSPACE/speeds/KEY.json

KEY is a digest of everything that the speeds depend on: machine, network, image size, batch sizes and so on.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import torch

from lipt.adapters.store.file import FileStore
from lipt.data.chunks import Dataset
from lipt.errors import LiptError
from lipt.forecast.machine import Machine, Setup
from lipt.forecast.sizes import DataSize
from lipt.forecast.speed import decoding_here, is_busy, rates_here
from lipt.report.numbers import format_seconds
from lipt.runtime.artifact import canonical_json, key_of
from lipt.runtime.budgets import epoch_batches, kept_images
from lipt.runtime.context import Context
from lipt.training.batches import batch_sizes

_FOLDER = "speeds"


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Measured speeds; the fields of that name as in `Machine`."""

    measured: str
    """When: ISO 8601, UTC."""
    busy: bool
    """Whether other work on the machine slowed the measurement down."""
    rates: Mapping[str, float] = field(default_factory=dict)
    setups: Mapping[str, Setup] = field(default_factory=dict)
    decode_s: Mapping[Literal["crop", "whole"], float] = field(default_factory=dict)
    kept: str = ""
    """The folder, if an earlier command measured and kept them."""
    took_s: float = 0
    """Seconds of the measurement, if this command has measured."""

    def of(self, machine: Machine, ctx: Context) -> Machine:
        """The machine with these speeds."""
        shares = ctx.device.type == "cpu"
        return replace(machine, rates=self.rates, setups=self.setups, decode_s=self.decode_s, shares_cores=shares)

    @property
    def when(self) -> str:
        """Such as `just now`, or `2026-07-14 09:31 UTC`."""
        return f"{self.measured[:16].replace('T', ' ')} UTC" if self.kept else "just now"


def how_to_measure(speeds: Collection[Speeds]) -> list[str]:
    """How long the measurement took; when the oldest of the kept speeds were measured, and how to measure anew."""
    lines = []
    if took_s := sum(each.took_s for each in speeds):
        lines.append(f"speeds of this machine: measured just now, in {format_seconds(took_s)}")
    if kept := [each for each in speeds if each.kept and each.rates]:
        oldest = min(kept, key=lambda each: each.measured)
        lines.append(f"speeds of this machine: measured {oldest.when}; to measure anew, delete {oldest.kept}")
    return lines


def speeds_here(ctx: Context, data: DataSize, stages: Collection[str], decoded: Dataset | None = None) -> Speeds:
    """The speeds of this machine in these stages: the kept ones, or measured now and kept.

    Speeds of a busy machine are measured again once it is idle. They are kept only in a folder that exists: a plan
    makes no workspace, and does not wait for a bucket.

    Args:
        decoded: also measure how fast images of this data set are decoded.
    """
    settings = _settings(ctx, data, stages, decodes=decoded is not None)
    key = f"{_FOLDER}/{key_of(_FOLDER, settings, [])}.json"
    store = ctx.workspace.store
    keeps = isinstance(store, FileStore) and os.path.isdir(store.root)
    found = _read(ctx, key) if keeps else None
    if found and not found.busy:
        return found
    busy = is_busy(ctx.device)
    if found and busy:
        return found
    start_s = time.perf_counter()
    rates, setups = rates_here(ctx, data, stages)
    decode_s = decoding_here(ctx, decoded) if decoded else {}
    speeds = Speeds(
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        busy=busy,
        rates=rates,
        setups=setups,
        decode_s=decode_s,
        took_s=time.perf_counter() - start_s,
    )
    if keeps:
        with suppress(LiptError):  # who may not write there measures each time
            store.write(key, _to_json(speeds, settings), kind="other")
    return speeds


def speeds_key(ctx: Context, data: DataSize, stages: Collection[str]) -> bytes:
    """Equal for configurations that have the same speeds in these stages."""
    return canonical_json(_settings(ctx, data, stages, decodes=False))


def _settings(ctx: Context, data: DataSize, stages: Collection[str], *, decodes: bool) -> dict[str, Any]:
    """Everything that the speeds depend on."""
    config = ctx.config
    kept = kept_images(config, data.candidates)
    batches = {
        "initialise": batch_sizes(data.candidates, config.initialise.batch_size)[0],
        "train": epoch_batches(config.train, data.candidates, kept)[0],
    }
    return ctx.settings(
        "data",
        "model",
        "dispatch",
        "pretrain",
        "merge",
        seeded=False,
        proxy=config.score.proxy and config.score.proxy.model_dump(mode="json"),
        batches=batches,
        raptr=[config.initialise.raptr is not None, config.train.raptr is not None],
        processes=config.processes,
        precision=ctx.precision,
        images=[data.train, data.candidates, data.classes, data.side],
        stages=sorted(stages),
        decodes=decodes,
        machine=[socket.gethostname(), ctx.machine, torch.__version__],
    )


def _to_json(speeds: Speeds, settings: Mapping[str, Any]) -> bytes:
    kept = {name: value for name, value in asdict(speeds).items() if name not in ("kept", "took_s")}
    document = kept | {"of": settings}
    return json.dumps(document | {"digest": _digest(document)}, indent=1).encode()


def _read(ctx: Context, key: str) -> Speeds | None:
    """The kept speeds; None if there are none, or if the file is damaged, was edited or cannot be read."""
    try:
        document = json.loads(ctx.workspace.store.read(key, kind="other"))
        if document.pop("digest") != _digest(document):
            return None
        del document["of"]
        setups = {stage: Setup(**each) for stage, each in document.pop("setups").items()}
        return Speeds(**document, setups=setups, kept=f"{ctx.config.workspace}/{_FOLDER}")
    except (LiptError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(document)).hexdigest()
