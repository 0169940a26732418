"""Selection at the size of ImageNet.

    python benchmarks/scale.py write FOLDER            # 1,281,167 x (1000 + 512) bf16, 20 safetensors files, 3.9 GB
    python benchmarks/scale.py run FOLDER              # 10 % by each algorithm, in a process of its own
    python benchmarks/scale.py run FOLDER --top-classes 32      # of compressed logits, after a run of whole ones

Features are what a ReLU network leaves: non-negative, four clusters per class, classes in groups of look-alikes. Logits
are those of a linear classifier that is right about four times in five. `run` reads the blocks one by one, into one
matrix where the algorithm needs that or `--whole` says so, and fails where a process took more than `--limit-gib`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from lipt.selection import Candidates, Outputs, StoredOutputs, select
from lipt.selection.inputs.compressed import TopLogits
from lipt.selection.inputs.passes import in_memory

IMAGENET = {"images": 1_281_167, "classes": 1000, "features": 512}
BLOCK = 65536
#: What runs at the size of ImageNet, with its options.
AT_SCALE: dict[str, dict[str, Any]] = {
    "grand": {},
    "el2n": {},
    "ccs": {},
    "moderate": {},
    "gradmatch": {},
    "craig": {"greedy": "stochastic"},
}


class Source:
    """Blocks of synthetic scores, the same for the same sizes whoever asks for them and in whatever order."""

    def __init__(self, classes: int, features: int) -> None:
        self.classes, self.features = classes, features
        g = torch.Generator().manual_seed(0)
        alike_GD = torch.randn(math.ceil(classes / 10), features, generator=g)
        centres_CD = 0.5 * alike_GD[torch.arange(classes) // 10] + 0.45 * torch.randn(classes, features, generator=g)
        self.clusters_CSD = centres_CD[:, None] + 0.4 * torch.randn(classes, 4, features, generator=g)
        means_CD = self.clusters_CSD.relu().mean(1)
        self.weights_DC = (means_CD - means_CD.mean(0)).T
        self.bias_C = -0.5 * means_CD.square().sum(1)

    def block(self, index: int, rows: int) -> dict[str, Tensor]:
        """Labels (B,) int64, logits (B, C) and features (B, D) bf16."""
        g = torch.Generator().manual_seed(index + 1)
        labels_B = torch.randint(self.classes, (rows,), generator=g)
        cluster_B = torch.randint(4, (rows,), generator=g)
        features_BD = torch.randn(rows, self.features, generator=g).mul_(2.5)
        features_BD = features_BD.add_(self.clusters_CSD[labels_B, cluster_B]).relu_()
        sharpness = 5.0 / math.sqrt(self.features)
        logits_BC = torch.addmm(self.bias_C, features_BD, self.weights_DC).mul_(sharpness)
        return {"labels": labels_B, "logits": logits_BC.bfloat16(), "features": features_BD.bfloat16()}

    def blocks(self, images: int) -> Iterator[dict[str, Tensor]]:
        """All of them."""
        for index, start in enumerate(range(0, images, BLOCK)):
            yield self.block(index, min(BLOCK, images - start))


def write(folder: Path, images: int, classes: int, features: int) -> None:
    """The blocks as files, and the sizes beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, block in enumerate(Source(classes, features).blocks(images)):
        save_file(block, folder / f"block-{index:05}.safetensors")
        right = (block["logits"].argmax(1) == block["labels"]).double().mean()
        print(f"block {index}: {len(block['labels']):,} samples, {right:.0%} of the predictions are right", flush=True)
    (folder / "sizes.json").write_text(json.dumps({"images": images, "classes": classes, "features": features}))


class Stored:
    """The blocks in a folder as candidates; reads one when it is asked for, and notes what that took.

    Args:
        classes: keep only samples of the first `classes` classes.
        top: compress the logits of each block.
    """

    def __init__(self, folder: Path, classes: int | None, top: int | None) -> None:
        self.files, self.top = sorted(folder.glob("block-*.safetensors")), top
        self.rows = [_kept_rows(file, classes) for file in self.files]
        self.num_classes = json.loads((folder / "sizes.json").read_text())["classes"]
        self.wall_s = self.cpu_s = 0.0
        self.logits: dict[int, tuple[int, Tensor]] = {}
        """Of each block: bytes of its logits, and their errors."""

    def candidates(self) -> Candidates:
        labels = [self._tensors(index, "labels")[0] for index in range(len(self.files))]
        stored = StoredOutputs(models=1, sizes=list(map(len, self.rows)), read=self.read)
        return Candidates(labels_N=torch.cat(labels), num_classes=self.num_classes, stored=stored)

    def read(self, index: int) -> list[Outputs]:
        wall, cpu = time.perf_counter(), time.process_time()
        labels_B, logits_BC, features_BD = self._tensors(index, "labels", "logits", "features")
        logits = logits_BC if self.top is None else TopLogits.compress(logits_BC, labels_B, self.top)
        self.logits[index] = logits.nbytes, logits.error_N if isinstance(logits, TopLogits) else torch.zeros(1)
        self.wall_s += time.perf_counter() - wall
        self.cpu_s += time.process_time() - cpu
        return [Outputs(logits_NC=logits, features_ND=features_BD)]

    def _tensors(self, index: int, *names: str) -> list[Tensor]:
        with safe_open(self.files[index], framework="pt") as opened:
            return [opened.get_tensor(name)[self.rows[index]] for name in names]


def _kept_rows(file: Path, classes: int | None) -> Tensor:
    with safe_open(file, framework="pt") as opened:
        labels_B = opened.get_tensor("labels")
    return torch.arange(len(labels_B)) if classes is None else (labels_B < classes).nonzero().flatten()


def one(folder: Path, algorithm: str, classes: int | None, top: int | None, *, whole: bool) -> dict[str, Any]:
    """Select in this process; what it took, and which samples were picked."""
    stored = Stored(folder, classes, top)
    start, start_cpu = time.perf_counter(), time.process_time()
    candidates = in_memory(stored.candidates(), "candidate") if whole else stored.candidates()
    selection = select(algorithm, candidates, fraction=0.1, **AT_SCALE[algorithm])
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - start_cpu
    np.save(folder / _picks(algorithm, classes, top), selection.indices_K.numpy())
    errors_N = torch.cat([error_B for _, error_B in stored.logits.values()])
    return {
        "n": len(candidates),
        "k": len(selection.indices_K),
        "read_s": stored.wall_s,
        "select_s": seconds - stored.wall_s,
        "cpu_s": cpu_s - stored.cpu_s,
        "peak_gib": _peak_gib(),
        "logits_gib": sum(size for size, _ in stored.logits.values()) / 2**30,
        "error_max": float(errors_N.max()),
        "error_mean": float(errors_N.double().mean()),
    }


def _peak_gib() -> float:
    """Of this program: the child of a process would inherit the `ru_maxrss` of its parent."""
    (peak_kib,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(peak_kib) / 2**20


def _picks(algorithm: str, classes: int | None, top: int | None) -> str:
    return f"picks-{algorithm}-{classes or 'all'}{f'-top{top}' if top else ''}.npy"


def run(
    folder: Path, algorithms: list[str], classes: int | None, top: int | None, limit_gib: float, *, whole: bool
) -> None:
    """Each algorithm in a child process, whose peak memory is its own; a line of a Markdown table each."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread(s)\n")
    print("| algorithm | n | k | read | select | CPU time | memory, peak | picks as of whole logits |")
    print("|---|---|---|---|---|---|---|---|")
    for algorithm in algorithms:
        arguments = ["one", str(folder), algorithm, "--threads", str(torch.get_num_threads())]
        arguments += [*_flag("--classes", classes), *_flag("--top-classes", top), *(["--whole"] if whole else [])]
        child = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
        took = json.loads(child.stdout)
        same = "–"
        if top and (folder / _picks(algorithm, classes, None)).exists():
            picks = [np.load(folder / _picks(algorithm, classes, t)) for t in (None, top)]
            same = f"{len(np.intersect1d(*picks)) / len(picks[0]):.1%}"
        print(
            f"| {algorithm} | {took['n']:,} | {took['k']:,} | {took['read_s']:.1f} s | {took['select_s']:.1f} s "
            f"| {took['cpu_s']:.1f} s | {took['peak_gib']:.2f} GiB | {same} |",
            flush=True,
        )
        if took["peak_gib"] > limit_gib:
            sys.exit(f"{algorithm} took {took['peak_gib']:.2f} GiB, more than {limit_gib:g}")
    if top:
        print(f"top {top}: logits {took['logits_gib']:.2f} GiB, ", end="")
        print(f"|delta - delta^| at most {took['error_max']:.4f}, {took['error_mean']:.4f} on average")


def _flag(name: str, value: int | None) -> list[str]:
    return [] if value is None else [name, str(value)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["write", "run", "one"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("algorithms", nargs="*", default=list(AT_SCALE))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--images", type=int, default=IMAGENET["images"])
    parser.add_argument("--features", type=int, default=IMAGENET["features"])
    parser.add_argument("--classes", type=int, help="write: number of classes; run: keep samples of the first N")
    parser.add_argument("--top-classes", type=int, help="run: number of logits to keep besides the label")
    parser.add_argument("--whole", action="store_true", help="run: hold all outputs, whatever the algorithm needs")
    parser.add_argument("--limit-gib", type=float, default=12.0)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.what == "write":
        write(given.folder, given.images, given.classes or IMAGENET["classes"], given.features)
    elif given.what == "run":
        run(given.folder, given.algorithms, given.classes, given.top_classes, given.limit_gib, whole=given.whole)
    else:
        took = one(given.folder, given.algorithms[0], given.classes, given.top_classes, whole=given.whole)
        print(json.dumps(took))


if __name__ == "__main__":
    main()
