"""The selection algorithms and their rivals in one run, on one thread: `python -m benchmarks.selection [PART …]`.

rivals: one class of CIFAR-10 shape (n = 5000, C = 10, d = 512, k = 500, float32): the loops that users would write
   (`loops`), the installed libraries (`peers`, which says how to install them), factored numpy (`factored`),
   LiPT. The rankings take milliseconds, much of them for checks that no rival does: these also at n = 50,000.
classes: CRAIG with C = 100, where dense gradients fill memory: time, and the memory that each needs beyond its inputs.
cifar: all of CIFAR-10 (50,000 x (10 + 512), 10 %): every algorithm, in per cent of one forward pass of ResNet-18.

Prints Markdown; CPU seconds. Loops and libraries run once, numpy and LiPT by turns, several calls in each.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import resource
import statistics
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.factored import RIVALS
from benchmarks.loops import LAM, LOOPS, sample
from lipt.selection import ALGORITHMS, Candidates, requirements, select
from lipt.training.networks import build_model, on_device

PEERS = ("cords", "apricot", "submodlib")
#: Of cords its solver for GPUs, which is the faster one here, too.
CORDS: dict[str, dict[str, Any]] = {
    "gradmatch": {"device": torch.device("cpu"), "lam": 0.5}, "glister": {"greedy": "Naive", "eta": 0.01}, "craig": {}
}  # fmt: skip
#: CPU seconds after which a rival is stopped.
PATIENCE_S = 100
#: Options that LiPT and numpy share.
SETTINGS: dict[str, dict[str, float]] = {"gradmatch": {"lam": LAM}, "ccs": {"beta": 0.3}}


def cpu_seconds(function: Callable[[], object], calls: int = 1) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - start) / calls


def by_turns(first: Callable[[], object], second: Callable[[], object], turns: int = 7) -> tuple[float, float]:
    """Median seconds of the second, and the median ratio of the first to it; of about 50 ms of calls per turn."""
    calls = [max(1, round(0.05 / cpu_seconds(each))) for each in (first, second)]
    pairs = [(cpu_seconds(first, calls[0]), cpu_seconds(second, calls[1])) for _ in range(turns)]
    return statistics.median(b for _, b in pairs), statistics.median(a / b for a, b in pairs)


def peer_calls(c: Candidates, k: int) -> Mapping[tuple[str, str], Callable[[], object]] | None:
    """By algorithm and library; None where they are not installed. Similarities are part of the work."""
    try:
        from benchmarks.peers import libraries
        from benchmarks.peers.inputs import Classifier, Problem
    except ImportError:
        return None
    (outputs,) = c.outputs
    features = outputs.features_ND
    model = Classifier(features.shape[1], c.num_classes)
    solved = torch.linalg.lstsq(torch.cat([features, torch.ones(len(c), 1)], 1), outputs.logits_NC).solution
    with torch.no_grad():
        model.weight.copy_(solved[:-1].T)
        model.bias.copy_(solved[-1])
    labels = c.labels_N.clone()
    labels[: c.num_classes] = torch.arange(c.num_classes)  # cords fails on a class without samples
    problem = Problem(features, labels, model)

    def cosine() -> np.ndarray:
        unit = (features / features.norm(dim=1, keepdim=True)).numpy()
        return (1 + unit @ unit.T) / 2

    calls: dict[tuple[str, str], Callable[[], object]] = {
        (name, "cords"): lambda name=name, own=own: libraries.cords(name, problem, k, selection_type="PerClass", **own)
        for name, own in CORDS.items()
    }
    calls["facility_location", "apricot"] = lambda: libraries.apricot_facility(cosine(), k)
    calls["facility_location", "submodlib"] = lambda: libraries.submodlib_facility(cosine(), k)
    calls["graph_cut", "apricot"] = lambda: libraries.apricot_cut(cosine(), k, 0.5)
    calls["graph_cut", "submodlib"] = lambda: libraries.submodlib_cut(cosine(), k, 0.5)
    calls["k_center", "submodlib"] = lambda: libraries.submodlib_farthest(cosine(), k)
    return calls


def row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def rival_seconds(call: Callable[[], object] | None) -> tuple[str, float]:
    """A cell and its seconds; of an error its name. In a child process, which can be stopped at any time."""
    if call is None:
        return "", float("inf")
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE_S, PATIENCE_S))
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                sender.send(cpu_seconds(call))
        except Exception as error:  # whatever a library raises is the finding
            sender.send(type(error).__name__)

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        found = f"> {PATIENCE_S}"
    child.join()
    return (found, float("inf")) if isinstance(found, str) else (f"{found:.3g}", found)


def rivals(names: tuple[str, ...] = tuple(RIVALS), n: int = 5000, k: int = 500, *, slow: bool = True) -> None:
    """The table; `slow` includes loops and libraries."""
    full = sample(n, 10, 512)
    (outputs,) = full.outputs
    arrays = (outputs.logits_NC.numpy(), full.labels_N.numpy(), outputs.features_ND.numpy())
    calls = peer_calls(full, k) if slow else {}
    for first in (peer_calls(sample(200, 10, 512), 20) or {}).values() if slow else ():
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
            first()  # some compile themselves
    torch.set_num_threads(1)  # some raise it
    columns = ["published loop", *PEERS] if slow else []
    print(f"\n### One class: n = {n:,}, C = 10, d = 512, k = {k:,}, float32, CPU seconds\n")
    row("algorithm", *columns, "factored numpy", "LiPT", "LiPT against the fastest rival", "picked by both")
    row(*["---"] * (len(columns) + 5))
    for name in names:
        options, loop = SETTINGS.get(name, {}), LOOPS.get(name)
        ours: Callable[[], Any] = lambda: select(name, full, k=k, balanced=False, **options)  # noqa: B023, E731
        theirs: Callable[[], Any] = lambda: RIVALS[name](*arrays, k, **options)  # noqa: B023, E731
        both = len({*ours().indices_K.tolist()} & {*theirs().tolist()}) / k
        engine_s, ratio = by_turns(theirs, ours)
        others = [rival_seconds(loop and (lambda: loop(full, k)))] if slow else []  # noqa: B023
        for peer in PEERS if slow else ():
            others.append(("not installed", float("inf")) if calls is None else rival_seconds(calls.get((name, peer))))
        fastest = min([ratio, *(seconds / engine_s for _, seconds in others)])
        cells = [text for text, _ in others]
        row(f"`{name}`", *cells, f"{ratio * engine_s:.3g}", f"{engine_s:.3g}", f"**{fastest:.2f}**", f"{both:.1%}")


class Memory(TorchDispatchMode):
    """The most bytes that tensors made under it held at once."""

    def __init__(self) -> None:
        super().__init__()
        self.held, self.peak, self._seen = 0, 0, dict[int, int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(each, Tensor) and (address := each.untyped_storage().data_ptr()) not in self._seen:
                size = self._seen[address] = each.untyped_storage().nbytes()
                self.held += size
                self.peak = max(self.peak, self.held)
                weakref.finalize(each.untyped_storage(), self._free, address)
        return result

    def _free(self, address: int) -> None:
        self.held -= self._seen.pop(address, 0)


def peak_mb(function: Callable[[], object]) -> float:
    with Memory() as memory:
        function()
    return memory.peak / 1e6


def many_classes() -> None:
    n, k = 5000, 500
    full = sample(n, 100, 512)
    print(f"\n### CRAIG with C = 100, n = {n}, d = 512, k = {k}\n")
    print("| | time, s | memory, MB |\n|---|---|---|")
    ours_s = min(cpu_seconds(lambda: select("craig", full, k=k)) for _ in range(3))
    loop_s = cpu_seconds(lambda: LOOPS["craig"](full, k))
    ours_mb, loop_mb = peak_mb(lambda: select("craig", full, k=k)), peak_mb(lambda: LOOPS["craig"](full, k))
    print(f"| loop on dense gradients | {loop_s:.1f} | {loop_mb:,.0f} |")
    print(f"| LiPT | {ours_s:.2f} | {ours_mb:,.0f} |")
    faster, smaller = f"**{loop_s / ours_s:.0f}x** (wanted 15x)", f"**{loop_mb / ours_mb:.0f}x** (wanted 10x)"
    print(f"| ratio | {faster} | {smaller} |", flush=True)


@torch.no_grad()
def forward_s(dtype: torch.dtype, images: int = 5120) -> float:
    """CPU seconds for 50,000 images through ResNet-18, by the share that is really run."""
    model = on_device(build_model("resnet18", num_classes=10, seed=0), torch.device("cpu")).eval()
    x = torch.randn(128, 3, 32, 32).contiguous(memory_format=torch.channels_last)  # as the scoring pass runs it
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        model(x)
        start = time.process_time()
        for _ in range(images // 128):
            model(x)
    return (time.process_time() - start) * 50_000 / images


def whole_cifar() -> None:
    passes = {dtype: forward_s(dtype) for dtype in (torch.float32, torch.bfloat16)}
    labels = torch.arange(50_000) % 10
    full = sample(50_000, 10, 512, labels)
    two = Candidates(labels_N=labels, num_classes=10, outputs=[*full.outputs, *sample(50_000, 10, 512, labels).outputs])
    print("\n### CIFAR-10: 50,000 x (10 + 512), 10 %, class by class\n")
    print("| algorithm | s | of a forward pass in float32 | in bfloat16 |\n|---|---|---|---|")
    row("one forward pass of ResNet-18 (from 5,120 images)", "", *(f"{seconds:.0f} s" for seconds in passes.values()))
    variants: list[tuple[str, dict[str, object]]] = [
        (name, {}) for name in ALGORITHMS if requirements(name, 0.1).outputs
    ]
    variants += [
        ("glister", {"greedy": "r_greedy"}),
        ("glister", {"greedy": "stochastic"}),
        ("gradmatch", {"per": "class_gradient"}),
        ("gradmatch", {"per": "batch"}),
        ("craig", {"greedy": "stochastic"}),
        ("facility_location", {"greedy": "stochastic"}),
    ]
    for name, options in variants:
        given = two if requirements(name, 0.1).models > 1 else full
        ours_s = min(
            cpu_seconds(lambda name=name, o=options, g=given: select(name, g, fraction=0.1, **o)) for _ in range(2)
        )
        text = ", ".join(f"{key}: {value}" for key, value in options.items())
        row(f"`{name}` {text}", f"{ours_s:.3f}", *(f"{ours_s / seconds:.2%}" for seconds in passes.values()))


PARTS: dict[str, Callable[[], None]] = {"rivals": rivals, "classes": many_classes, "cifar": whole_cifar}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    torch.set_num_threads(1)
    for part in parser.parse_args().part or PARTS:
        PARTS[part]()
        if part == "rivals":
            rivals(("grand", "el2n", "moderate", "prototypes", "ccs"), 50_000, 5_000, slow=False)


if __name__ == "__main__":
    main()
