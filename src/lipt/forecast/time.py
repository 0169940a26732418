"""Predict how long each stage takes, what limits it, and what fails first.

A part of a stage (a jigsaw, a score block) takes

    compute + max(decoding, store)      if its images are loaded first,
    max(compute, decoding, store)       if they are streamed during the computation,
    max(compute, decoding) + store      if their files are loaded first and decoded at each use.

Pods that share a training exchange gradients while they compute; the slower of the two counts.

A stage takes this time per wave of parts, plus the start of its pods. Speeds are best measured on finished runs on the
same machines (`forecast.calibration`). Without them, the defaults of `Machine` are assumed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lipt.config import Config
from lipt.forecast.machine import Fit, Machine, Setup
from lipt.forecast.work import Work
from lipt.pipeline import BOXES, Engine
from lipt.report.numbers import format_bytes, format_percent, format_seconds
from lipt.runtime.checkpoint import MOST_TIME

Bottleneck = Literal["compute", "decode", "store", "requests", "orchestration", "network", "memory"]

#: Seconds that an engine adds to a box. Pods per second that a Job starts (kube-controller-manager's default).
STEP_S: Mapping[Engine, float] = {"local": 0, "argo": 10, "kubeflow": 20}
_PODS_PER_S = 20
#: The most bytes of one argument of a process on Linux. The list of score blocks is one argument.
_ARGUMENT_BYTES = 128 * 1024


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A stage's predicted wall-clock seconds, and the bytes and FLOPs of all its pods."""

    stage: str
    pods: int
    parts: int
    wall_s: float
    start_s: float
    gpu_hours: float
    flops: float
    read: dict[str, float]
    written: dict[str, float]
    memory_bytes: float
    """Memory of the largest pod."""
    bottleneck: Bottleneck


def forecast(works: Sequence[Work], machine: Machine, config: Config, side: int) -> list[Forecast]:
    """Predict each stage on these machines.

    Args:
        side: longer side of an image, in pixels.
    """
    names = [work.stage for work in works]
    boxes = {stage: int(stage in BOXES) for stage in names}
    boxes[names[0]] += len(set(BOXES) - set(names))  # boxes without work start too
    if machine.engine == "local":
        starts = {stage: (machine.start_s + machine.report_s) * (stage == names[0]) for stage in names}
    else:
        starts = {stage: boxes[stage] * (STEP_S[machine.engine] + machine.pod_start_s) for stage in names}
    return [_stage(work, machine, config, side, starts[work.stage]) for work in works]


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """How a stage is divided. Processes either take whole parts, or share each batch of a training."""

    pods: int
    """Pods that work at the same time. Each takes whole parts, one after the other."""
    apart: int
    """Processes of a pod that take whole parts."""
    nodes: int
    """Pods that share each batch."""
    members: int
    """Processes of a pod that share each batch."""

    @property
    def together(self) -> int:
        """Processes that share each batch."""
        return self.members * self.nodes


def _layout(work: Work, machine: Machine, config: Config) -> _Layout:
    nodes = nodes_of(machine, config) if work.member_bytes else 1
    spreads = work.spreads and machine.engine != "local" and nodes == 1
    pods = min(machine.nodes, work.parts) if spreads else 1
    processes = config.processes if isinstance(config.processes, int) else 1
    apart = min(processes, math.ceil(work.parts / pods)) if work.spreads else 1
    if work.member_bytes and apart < processes:
        apart = 1
    members = processes if work.member_bytes and apart == 1 else 1
    return _Layout(pods=pods, apart=apart, nodes=nodes, members=members)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Seconds of one part of a stage."""

    compute: float
    network: float
    decode: float
    transfer: float
    waiting: float
    busy: float
    """In all: some of the others overlap."""


def _part(work: Work, machine: Machine, layout: _Layout, side: int) -> _Part:
    fit, setup = machine.fits.get(work.stage), _setup(work, machine)
    readers = layout.together if work.streams else layout.members  # each pod reads all images that are held in memory
    decoders = layout.together if work.crops else readers
    network = 16e-9 * (layout.nodes - 1) / layout.nodes * work.gradient_bytes * work.steps / machine.node_gbps
    alone = _compute_s(work, machine, fit) / layout.together
    compute = max(alone, network) + setup.part_s
    # Measured compute includes decoding, so decoding is added only without a measurement.
    decode = 0.0 if fit else work.decoded * machine.decoding_s(work, side) / decoders
    waiting = machine.waiting_s(work.requests) / readers
    moved = sum(work.read.values()) / (layout.nodes if work.streams else 1) + sum(work.written.values())
    transfer = machine.transfer_s(moved, layout.pods * layout.nodes, layout.apart)
    io = transfer + waiting
    overlapped = compute + decode if machine.shares_cores else max(compute, decode)
    if work.streams:
        busy = max(overlapped, io)
    elif work.crops:
        busy = overlapped + io
    else:
        busy = compute + max(decode, io)
    return _Part(
        compute=alone + setup.part_s, network=network, decode=decode, transfer=transfer, waiting=waiting, busy=busy
    )


def _setup(work: Work, machine: Machine) -> Setup:
    return machine.setups.get(work.stage, Setup(part_s=0, first_s=0))


def _start_s(work: Work, machine: Machine, layout: _Layout) -> float:
    """Seconds to start the pods and processes of a stage, besides those of its box."""
    seconds = 0.0
    if machine.engine != "local" and work.spreads and layout.pods > 1:
        seconds += machine.pod_start_s + layout.pods / _PODS_PER_S
    if layout.nodes > 1:  # a Job for each training
        seconds += work.parts * (machine.pod_start_s + layout.nodes / _PODS_PER_S)
    if layout.apart > 1 or layout.together > 1:  # new processes for all parts, or for each training
        seconds += machine.start_s * (1 if layout.apart > 1 else work.parts)
    return seconds


def _stage(work: Work, machine: Machine, config: Config, side: int, box_s: float) -> Forecast:
    """
    Args:
        box_s: seconds to start the box.
    """
    fit, layout = machine.fits.get(work.stage), _layout(work, machine, config)
    part, pods = _part(work, machine, layout, side), layout.pods * layout.nodes
    waves = math.ceil(work.parts / (layout.pods * layout.apart))
    memory = layout.apart * work.memory_bytes + (layout.members - 1) * work.member_bytes
    written = {kind: work.parts * size for kind, size in work.written.items()}
    if work.checkpoints:
        least_s = config.train.checkpoint_s and machine.transfer_s(work.checkpoint_bytes, pods) / MOST_TIME
        every_s = max(config.train.checkpoint_s, least_s)
        saved = min(work.checkpoints, part.busy // every_s if every_s else math.inf)
        written["model"] += work.parts * saved * work.checkpoint_bytes
    # One process of a pod fetches the weights for all of its processes.
    kept = {kind: size * (1 if kind == "model" else layout.apart) for kind, size in work.once.items()}
    first = (fit or _setup(work, machine)).first_s + machine.transfer_s(sum(kept.values()), pods)
    start = box_s + _start_s(work, machine, layout)
    shares: dict[Bottleneck, float] = {
        "compute": waves * part.compute,
        "network": waves * part.network,
        "decode": waves * part.decode,
        "store": waves * part.transfer + first,
        "requests": waves * part.waiting,
        "orchestration": start,
    }
    copies = 1 if work.streams else layout.nodes
    read = {
        kind: copies * work.parts * work.read.get(kind, 0) + pods * kept.get(kind, 0)
        for kind in ("data", "model", "other")
    }
    gpu_s = (work.parts * part.busy + layout.pods * layout.apart * first) * layout.together if work.flops else 0
    return Forecast(
        stage=work.stage,
        pods=pods,
        parts=work.parts,
        wall_s=waves * part.busy + first + start,
        start_s=start,
        gpu_hours=gpu_s / 3600,
        flops=work.parts * work.flops * (fit.done if fit else 1),
        read=read,
        written=written,
        memory_bytes=memory,
        bottleneck="memory" if memory > 1e9 * machine.memory_gb else max(shares, key=shares.__getitem__),
    )


def nodes_of(machine: Machine, config: Config) -> int:
    """Number of pods that share a training."""
    return config.train.nodes if machine.engine != "local" and _nodes_needed(machine, config) <= machine.nodes else 1


def _nodes_needed(machine: Machine, config: Config) -> int:
    """For a training that pods share. Under Kubeflow the box that waits for them holds a node, too."""
    return config.train.nodes + (machine.engine == "kubeflow")


def _compute_s(work: Work, machine: Machine, fit: Fit | None) -> float:
    if fit is None:  # items, for stages without FLOPs: sorting and parsing take about 10 ns per number
        return work.flops / (1e12 * machine.rates.get(work.stage, machine.gpu_tflops)) + 1e-8 * work.items
    return fit.done * (fit.per_flop * work.flops + fit.per_step * work.steps) + fit.per_item * work.items


def breaks(works: Sequence[Work], stages: Sequence[Forecast], machine: Machine, config: Config) -> list[str]:
    """Problems at this size: first what fails, then what wastes machines."""
    found, wall_s = [], {stage.stage: stage.wall_s for stage in stages}
    for stage in stages:
        if stage.bottleneck == "memory":
            needed, there = format_bytes(stage.memory_bytes), format_bytes(1e9 * machine.memory_gb)
            found.append(f"{stage.stage} needs {needed} of memory in one pod, a node has {there}")
    by_name = {work.stage: work for work in works}
    score, pretrain = by_name.get("score"), by_name.get("pretrain")
    if score and len(json.dumps(list(range(score.parts)), separators=(",", ":"))) > _ARGUMENT_BYTES:
        remedy = "raise score.block_images"
        found.append(f"the list of {score.parts:,} score blocks exceeds one argument of a process, 128 KiB; {remedy}")
    if pretrain and pretrain.parts * config.dispatch.batches * config.dispatch.batch_size > by_name["dispatch"].items:
        found.append("the shards of all jigsaws are more than the data set: dispatch will refuse")
    longest = max(stages, key=lambda stage: stage.wall_s)
    if machine.nodes > 1 and longest.pods == 1:
        share, wall = format_percent(longest.wall_s / sum(wall_s.values()), 0), format_seconds(longest.wall_s)
        remedy = "; train.nodes shares it" if by_name[longest.stage].member_bytes and config.train.nodes == 1 else ""
        found.append(f"{longest.stage} takes {wall}, {share} of the run, on one of {machine.nodes:,} nodes{remedy}")
    if config.train.nodes > nodes_of(machine, config) and machine.engine != "local":
        box = " and the box that waits for them" if machine.engine == "kubeflow" else ""
        needed = f"{config.train.nodes:,} pods{box} need {_nodes_needed(machine, config):,} nodes"
        found.append(f"train.nodes: {needed}, there are {machine.nodes:,}: one trains alone")
    if machine.nodes > 1 and pretrain and wall_s["merge"] > wall_s["pretrain"] and "group" not in wall_s:
        times = f"{format_seconds(wall_s['merge'])}, pretrain {format_seconds(wall_s['pretrain'])}"
        remedy = "merge.groups merges them side by side"
        found.append(f"merge tries {pretrain.parts:,} jigsaws one after the other: {times}; {remedy}")
    return found
