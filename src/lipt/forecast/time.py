"""Predict how long each stage takes, what limits it, and what fails first.

A part of a stage (a jigsaw, a score block) takes

    compute + max(decoding, store)      if its images are loaded first,
    max(compute, decoding, store)       if they are streamed during the computation,
    max(compute, decoding) + store      if their files are loaded first and decoded at each use.

Pods that share a training exchange gradients while they compute; the slower of the two counts.

A stage takes this time per round of parts, plus the start of its pods. Speeds are best measured on finished runs on the
same machines (`forecast.calibration`). Without them, the defaults of `Machine` are assumed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lipt.config import Config
from lipt.errors import UsageError
from lipt.forecast.work import Work
from lipt.pipeline import BOXES, Engine
from lipt.report.numbers import format_bytes, format_percent, format_seconds

Bottleneck = Literal["compute", "decode", "store", "requests", "orchestration", "network", "memory"]

#: Seconds that an engine adds to a box. Pods per second that a Job starts (kube-controller-manager's default).
STEP_S: Mapping[Engine, float] = {"local": 0, "argo": 10, "kubeflow": 20}
_PODS_PER_S = 20
#: Requests in flight in one process.
_IN_FLIGHT = 8
#: The most bytes of one argument of a process on Linux. The list of score blocks is one argument.
_ARGUMENT_BYTES = 128 * 1024


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The speed of a stage as measured on finished runs, in seconds."""

    per_flop: float = 0
    per_step: float = 0
    per_item: float = 0
    first_s: float = 0
    """Extra seconds of the first part in a process."""
    done: float = 1
    """FLOPs done / FLOPs predicted. Differs from 1 for the merge, whose search depends on its results."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Measured seconds in which a stage does not train yet."""

    part_s: float
    """In every part: build the network, count its FLOPs; prune and encode a jigsaw; unpack the jigsaws of a merge."""
    first_s: float
    """In the first part of a process besides: import what the stage needs, choose kernels."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machines of a run. The defaults are assumptions about a GPU node, not measurements."""

    engine: Engine = "local"
    nodes: int = 1
    """Number of nodes; the configuration's `processes` is the number of GPUs per node (default: one)."""
    gpu_tflops: float = 50
    """TFLOP/s that one GPU sustains in forward and backward passes."""
    store_gbps: float = 10
    """Gbit/s of the whole store."""
    node_gbps: float = 10
    """Gbit/s between the store and one node."""
    latency_ms: float = 5
    """Milliseconds per request."""
    pod_start_s: float = 15
    """Seconds from a pod's creation to its first work, on a node that has the image: schedule, start, import torch."""
    memory_gb: float = 64
    """Memory of a node."""
    fits: Mapping[str, Fit] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    """Measured TFLOP/s per stage (`speed`); `gpu_tflops` for stages without a measurement."""
    setups: Mapping[str, Setup] = field(default_factory=dict)
    """Of the stages whose set-up was measured (`speed`)."""
    decode_s: Mapping[Literal["crop", "whole"], float] = field(default_factory=dict)
    """Measured seconds per image that a process decodes (`speed`): random crops, and images for all other uses."""
    shares_cores: bool = False
    """Whether the network runs on the cores that decode, so that neither overlaps the other."""
    start_s: float = 0
    """Seconds to start a process of a local run: start Python, import torch."""
    report_s: float = 0
    """Seconds to write the report of a local run; counted in its start."""

    def __post_init__(self) -> None:
        if self.engine == "local" and self.nodes > 1:
            raise UsageError(f"--nodes {self.nodes}: only a cluster has several nodes", "--engine argo or kubeflow")

    def transfer_s(self, num_bytes: float, pods: int = 1, processes: int = 1) -> float:
        """Seconds to move `num_bytes` per process, with `processes` processes in each of `pods` pods."""
        return 8e-9 * num_bytes * processes / min(self.node_gbps, self.store_gbps / pods)

    def decoding_s(self, work: Work, side: int) -> float:
        """Seconds per image that a process decodes.

        Without a measurement 50 us and 9 ns per pixel, as for PNG files: 2,000 images of 224 px per second on the eight
        threads of a process, 17,000 of 32 px.
        """
        return self.decode_s.get("crop" if work.crops else "whole", 50e-6 + 9e-9 * side**2)

    def waiting_s(self, requests: float) -> float:
        """Seconds that a process waits for the store's answers."""
        return 1e-3 * requests * self.latency_ms / _IN_FLIGHT


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


def _stage(work: Work, machine: Machine, config: Config, side: int, start: float) -> Forecast:
    clustered, fit = machine.engine != "local", machine.fits.get(work.stage)
    setup = machine.setups.get(work.stage, Setup(part_s=0, first_s=0))
    nodes = nodes_of(machine, config) if work.member_bytes else 1  # nodes that share each batch
    pods = min(machine.nodes, work.parts) if work.spreads and clustered and nodes == 1 else 1
    processes = config.processes if isinstance(config.processes, int) else 1
    # Processes either take whole parts, or share each batch of a training.
    apart = min(processes, math.ceil(work.parts / pods)) if work.spreads else 1
    if work.member_bytes and apart < processes:
        apart = 1
    members = processes if work.member_bytes and apart == 1 else 1
    together = members * nodes
    looks = together if work.streams else members  # each pod reads all images that are held in memory
    decoders = together if work.crops else looks
    rounds = math.ceil(work.parts / (pods * apart))
    memory = apart * work.memory_bytes + (members - 1) * work.member_bytes
    network = 16e-9 * (nodes - 1) / nodes * work.gradient_bytes * work.steps / machine.node_gbps
    alone = _compute_s(work, machine, fit) / together
    compute = max(alone, network) + setup.part_s
    # Measured compute includes decoding, so decoding is added only without a measurement.
    decode = 0.0 if fit else work.decoded * machine.decoding_s(work, side) / decoders
    waiting = machine.waiting_s(work.requests) / looks
    written = {kind: work.parts * size for kind, size in work.written.items()}
    moved = sum(work.read.values()) / (nodes if work.streams else 1) + sum(work.written.values())
    transfer = machine.transfer_s(moved, pods * nodes, apart)
    io = transfer + waiting
    overlapped = compute + decode if machine.shares_cores else max(compute, decode)
    if work.streams:
        busy = max(overlapped, io)
    elif work.crops:
        busy = overlapped + io
    else:
        busy = compute + max(decode, io)
    if work.checkpoints:
        saved = min(work.checkpoints, busy // config.train.checkpoint_s if config.train.checkpoint_s else math.inf)
        written["model"] += work.parts * saved * work.checkpoint_bytes
    # One process of a pod fetches the weights for all of its processes.
    kept = {kind: size * (1 if kind == "model" else apart) for kind, size in work.once.items()}
    first = (fit.first_s if fit else setup.first_s) + machine.transfer_s(sum(kept.values()), pods * nodes)
    if clustered and work.spreads and pods > 1:
        start += machine.pod_start_s + pods / _PODS_PER_S
    if nodes > 1:  # a Job for each training
        start += work.parts * (machine.pod_start_s + nodes / _PODS_PER_S)
    if apart > 1 or together > 1:  # new processes for all parts, or for each training
        start += machine.start_s * (1 if apart > 1 else work.parts)
    shares: dict[Bottleneck, float] = {
        "compute": rounds * (alone + setup.part_s),
        "network": rounds * network,
        "decode": rounds * decode,
        "store": rounds * transfer + first,
        "requests": rounds * waiting,
        "orchestration": start,
    }
    kinds, copies = ("data", "model", "other"), 1 if work.streams else nodes
    return Forecast(
        stage=work.stage,
        pods=pods * nodes,
        parts=work.parts,
        wall_s=rounds * busy + first + start,
        start_s=start,
        gpu_hours=(work.parts * busy + pods * apart * first) * together / 3600 if work.flops else 0,
        flops=work.parts * work.flops * (fit.done if fit else 1),
        read={kind: copies * work.parts * work.read.get(kind, 0) + pods * nodes * kept.get(kind, 0) for kind in kinds},
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
