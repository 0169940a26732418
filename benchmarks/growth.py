"""How the time of a selection grows with n, C, d and k: a figure and its numbers.

python -m benchmarks.growth docs/figures           # `--plot` only draws the figure again
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.scale import AT_SCALE, IMAGENET, Source
from lipt.selection import Candidates, Outputs, select

GROWING: dict[str, dict[str, Any]] = AT_SCALE | {"glister": {}, "herding": {}, "k_center": {}, "graph_cut": {}}
_TYPICAL = {"n": 20_000, "C": 100, "d": 512, "k": 2_000}
_SWEEPS = {
    "n": [10_000, 31_623, 100_000, 316_228, 1_000_000],
    "C": [10, 32, 100, 316, 1000],
    "d": [64, 181, 512, 1448, 2048],
    "k": [200, 632, 2_000, 6_325],
}


def growth(folder: Path, limit_s: float, most: int) -> None:
    """Time each algorithm while one size grows and the others stay; `selection-scaling.csv` and `.svg`.

    CPU time of one thread: a machine that is shared with other work must not bend the curves. A curve ends after the
    first point that took more than `limit_s`.
    """
    torch.set_num_threads(1)
    lines: list[dict[str, Any]] = []
    for axis, values in _SWEEPS.items():
        running = dict(GROWING)
        for value in values:
            size = _TYPICAL | {axis: value}
            if axis in ("n", "C", "d"):
                size["k"] = size["n"] // 10
            if size["n"] > most:
                continue
            candidates = _in_memory(size["n"], size["C"], size["d"])
            for algorithm, options in list(running.items()):
                seconds = _best_of(algorithm, candidates, size["k"] / size["n"], options)
                lines.append({"axis": axis, **size, "algorithm": algorithm, "seconds": f"{seconds:.4f}"})
                print(axis, size, algorithm, f"{seconds:.3f} s", flush=True)
                if seconds > limit_s:
                    del running[algorithm]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "selection-scaling.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    plot(folder)


def _in_memory(n: int, classes: int, features: int) -> Candidates:
    blocks = list(Source(classes, features).blocks(n))
    whole = {name: torch.cat([block.pop(name) for block in blocks]) for name in ("labels", "logits", "features")}
    outputs = Outputs(logits_NC=whole["logits"], features_ND=whole["features"])
    return Candidates(labels_N=whole["labels"], num_classes=classes, outputs=[outputs])


def _best_of(algorithm: str, candidates: Candidates, fraction: float, options: dict[str, Any]) -> float:
    """The best of up to three runs, one where it takes more than a second."""
    seconds: list[float] = []
    while len(seconds) < 3 and sum(seconds) < 1:
        start = time.process_time()
        select(algorithm, candidates, fraction=fraction, **options)
        seconds.append(time.process_time() - start)
    return min(seconds)


def plot(folder: Path) -> None:
    """The figure of the numbers beside it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with (folder / "selection-scaling.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    titles = {"n": "samples n", "C": "classes C", "d": "features d", "k": "samples kept, k"}
    with mpl.rc_context(
        {
            "svg.hashsalt": "lipt",
            "svg.fonttype": "none",
            "font.size": 9,
            "axes.grid": True,
            "grid.color": "#e4e4e4",
            "axes.axisbelow": True,
        }
    ):
        figure = Figure(figsize=(9.5, 6.2), layout="constrained")
        all_axes = figure.subplots(2, 2, sharey=True).flat
        for axis, axes in zip(titles, all_axes, strict=True):
            for index, algorithm in enumerate(GROWING):
                own = [line for line in lines if line["axis"] == axis and line["algorithm"] == algorithm]
                axes.loglog(
                    [int(line[axis]) for line in own],
                    [float(line["seconds"]) for line in own],
                    "o-" if index < 6 else "s--",
                    color=f"C{index}",
                    markersize=3,
                    linewidth=1.3,
                    label=algorithm,
                )
            fixed = ", ".join(f"{name} = {_TYPICAL[name]:,}" for name in _TYPICAL if name not in (axis, "k"))
            axes.set_xlabel(f"{titles[axis]}   ({fixed}, {'k = n / 10' if axis != 'k' else 'balanced'})")
            axes.minorticks_off()
            axes.set_xticks(_SWEEPS[axis][::2], [f"{value:,}" for value in _SWEEPS[axis][::2]])
            axes.spines[["top", "right"]].set_visible(False)
        for axes in figure.axes[::2]:
            axes.set_ylabel("CPU seconds, one thread")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
        figure.savefig(folder / "selection-scaling.svg", metadata={"Date": None, "Creator": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=IMAGENET["images"], help="skip sizes beyond")
    parser.add_argument("--limit-s", type=float, default=30.0, help="a curve ends beyond")
    parser.add_argument("--plot", action="store_true")
    given = parser.parse_args()
    if given.plot:
        plot(given.folder)
    else:
        growth(given.folder, given.limit_s, given.images)


if __name__ == "__main__":
    main()
