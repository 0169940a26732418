"""The machines of a run, and what was measured on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lipt.data.chunks.reading import REQUESTS_AT_ONCE
from lipt.errors import UsageError
from lipt.forecast.work import Work
from lipt.pipeline import Engine


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
        return 1e-3 * requests * self.latency_ms / REQUESTS_AT_ONCE
