"""An experiment of many trainings in one file: a line of JSON for each finished one. A repeated call does the rest."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.tables import read_records
from lipt.config import Config, load_config, override
from lipt.runtime.context import Context


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The file of results, and the entries of a line that tell one training from another."""

    path: Path
    keys: tuple[str, ...]

    def lines(self) -> list[dict[str, Any]]:
        """The finished trainings."""
        return read_records(self.path) if self.path.exists() else []

    def missing(self, cells: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The cells without a line, in their order."""
        done = {self._name(line) for line in self.lines()}
        return [cell for cell in cells if self._name(cell) not in done]

    def write(self, line: Mapping[str, Any]) -> None:
        """Add a line."""
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def measure(self, cell: Mapping[str, Any], training: Callable[[], Mapping[str, Any]]) -> None:
        """Do a training and write its line: the cell, what the training returns, and its CPU seconds."""
        started, cpu = time.time(), time.process_time()
        found = {**cell, **training(), "cpu_s": round(time.process_time() - cpu, 1)}
        self.write(found)
        print(f"{found} {time.time() - started:.0f} s", flush=True)

    def scorer(self, config: Config, name: str) -> Path:
        """The file of a scorer, in a folder beside the results: one for each network, image size and recipe."""
        own = config.of_scorer()
        network = f"{own.model.name}-{own.model.width}-{own.data.image_size}"
        recipe = f"{own.initialise.batch_size}-{own.initialise.lr:g}"
        return self.path.with_suffix(".scorers") / f"{network}-{recipe}-{name}.safetensors"

    def _name(self, line: Mapping[str, Any]) -> str:
        return json.dumps([line.get(key) for key in self.keys])  # older lines have fewer entries


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments that all experiments share."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("config")
    found.add_argument("results", type=Path)
    found.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    found.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    found.add_argument("--steps", type=int, nargs="+", default=[500, 2000])
    return found


def contexts(given: argparse.Namespace) -> Iterator[Context]:
    """The configuration under each seed."""
    config = load_config(given.config, given.set)
    return (Context.of(override(config, {"seed": seed})) for seed in given.seeds)


def common(config: Config) -> dict[str, Any]:
    """The entries that describe the seed, the networks, the images and the batches."""
    proxy = config.score.proxy
    return {
        "seed": config.seed,
        "batch_size": config.train.batch_size,
        "model": [config.model.name, config.model.width],
        "size": config.data.image_size,
        "proxy": proxy.model_dump(exclude=None if proxy.name else {"name"}) if proxy else None,
    }
