"""What every stage is given besides its inputs: configuration, workspace, device, reporter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor, nn

from lipt.adapters.store import DatasetFiles, MissingObjectError
from lipt.config import Config
from lipt.data.augmentation import Augment, RandAugment, StandardAugment, no_augmentation
from lipt.data.chunks import Dataset
from lipt.data.images import ResidentImages, StreamedImages, open_images
from lipt.data.shards import Positions, split
from lipt.data.sources import Listing
from lipt.errors import DamagedDataError, IntegrityError, UsageError
from lipt.progress import Reporter
from lipt.rng import derive, reproducible
from lipt.run.source import open_apart
from lipt.run.workspace import CHUNKS, Artifact, Step, Workspace, key_of, run_step
from lipt.training.networks import build_model, train_flops_per_image
from lipt.training.tensor_files import State, unpack

WEIGHTS = "weights.safetensors"


@dataclass(frozen=True, kw_only=True)
class Context:
    """One configuration on one workspace."""

    config: Config
    workspace: Workspace
    reporter: Reporter
    dry_run: bool = False
    shared: Path | None = None
    """A folder of the processes that make pieces of one stage side by side: weights are fetched by one for all."""
    _weights: dict[str, State] = field(default_factory=dict, repr=False, compare=False)
    """The weights read last: a process that trains several jigsaws fetches theta_* once."""
    _listings: dict[tuple[str, str], Listing] = field(default_factory=dict, repr=False, compare=False)
    """What the source of the data holds: all variants of a comparison look at its files once."""
    _datasets: dict[str, Dataset] = field(default_factory=dict, repr=False, compare=False)
    """The data set opened last: a process fetches its manifest and its index once."""

    @classmethod
    def of(cls, config: Config, reporter: Reporter | None = None, *, dry_run: bool = False) -> Context:
        """A configuration on the workspace that it names; silent without a reporter."""
        workspace = Workspace(config.workspace)
        return cls(config=config, workspace=workspace, reporter=reporter or Reporter(), dry_run=dry_run)

    @cached_property
    def device(self) -> torch.device:
        """The device asked for.

        Raises:
            UsageError: `cuda` where there is none.
        """
        name = self.config.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        if name == "cuda" and not torch.cuda.is_available():
            raise UsageError("device: cuda was asked for, torch sees no GPU", "set device: auto, or check the driver")
        return torch.device(name)

    def step(
        self,
        stage: str,
        settings: Mapping[str, Any],
        inputs: Sequence[Artifact],
        body: Callable[[Step], dict[str, Any]],
        label: str | None = None,
    ) -> Artifact:
        """`run_step` on this workspace; reproducible on a CPU."""

        def computed(step: Step) -> dict[str, Any]:
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            with reproducible(self.device):
                return body(step)

        return run_step(
            self.workspace,
            self.reporter,
            stage=stage,
            settings=settings,
            inputs=list(inputs),
            body=computed,
            label=label,
            gpu_peak_bytes=torch.cuda.max_memory_allocated if self.device.type == "cuda" else lambda: 0,
            dry_run=self.dry_run,
        )

    def ref(self, stage: str, settings: Mapping[str, Any], inputs: Sequence[Artifact]) -> str:
        """Where `step` would leave its artifact."""
        return f"{stage}/{key_of(stage, settings, [artifact.ref for artifact in inputs])}"

    def weights(self, step: Step, artifact: Artifact) -> State:
        """The state dict of an artifact that holds a whole model; not to be changed in place."""
        if artifact.ref not in self._weights:
            data = self._fetch(step, artifact)
            self._weights.clear()
            self._weights[artifact.ref] = unpack(data, origin=f"{artifact.ref}/{WEIGHTS}")
        return self._weights[artifact.ref]

    def _fetch(self, step: Step, artifact: Artifact) -> bytes:
        if self.shared is None:
            return step.read(artifact, WEIGHTS, kind="model")
        path = self.shared / f"weights-{artifact.key}"
        with FileLock(f"{path}.lock"):
            if not path.exists():
                fetched = path.with_suffix(".part")  # this process may be ended at any time
                fetched.write_bytes(step.read(artifact, WEIGHTS, kind="model"))
                fetched.replace(path)
        return path.read_bytes()

    def seed(self, *names: str | int) -> int:
        """The seed of a stage."""
        return derive(self.config.seed, *names)

    def settings(self, *sections: str, seeded: bool = True, **more: Any) -> dict[str, Any]:
        """Those sections of the configuration as a stage's settings; `seeded` adds the run's seed."""
        chosen: dict[str, Any] = {
            section: getattr(self.config, section).model_dump(mode="json") for section in sections
        }
        return chosen | ({"seed": self.config.seed} if seeded else {}) | more

    def view(self) -> dict[str, Any]:
        """The settings that decide what a training stage sees of the data."""
        data = self.config.data
        return {
            "validation": data.validation_fraction,
            "size": data.image_size,
            "crop": [data.crop, data.crop_padding, data.flip],
            "resident_mb": data.resident_mb,
        }

    def artifact(self, ref: str) -> Artifact:
        """The finished artifact `STAGE/KEY`; on a dry run it may be one that would be made."""
        found = self.workspace.find(ref)
        if found is None and self.dry_run:
            stage, key = ref.split("/")
            return Artifact(stage=stage, key=key, inputs=(), settings={}, files={}, summary={})
        return found or self.workspace.get(ref)

    def listing(self) -> Listing:
        """What `data.source` holds, where it is no chunk store.

        Raises:
            UsageError: images and workspace overlap, or as `open_source`.
        """
        key = self.config.data.source, self.config.data.format
        if key not in self._listings:
            self._listings[key] = Listing.of(open_apart(self.config.data, self.workspace.store.at(CHUNKS)))
        return self._listings[key]

    def dataset(self, step: Step, ingested: Artifact) -> Dataset:
        """The data set behind an `ingest` artifact, metered by `step`: what it still has to read is that step's."""
        files = DatasetFiles(step.open(str(ingested.summary["location"])))

        def read(file: str, start: int, length: int | None) -> bytes:
            try:
                return files.read(file, start, length)
            except (MissingObjectError, IntegrityError) as error:
                raise DamagedDataError(error.message, "restore it, or run the same `lipt ingest` again") from None

        opened = Dataset(read, like=self._datasets.get(ingested.ref))
        self._datasets.clear()
        self._datasets[ingested.ref] = opened
        return opened

    def split(self, dataset: Dataset) -> tuple[Positions, Positions]:
        """(validation, candidates) positions of the training split."""
        count = dataset.manifest.splits["train"].count
        return split(count, self.config.data.validation_fraction, seed=self.seed("split"))

    def images(
        self,
        dataset: Dataset,
        name: str,
        positions: Positions,
        load: Callable[[StreamedImages], Tensor] = StreamedImages.whole,
    ) -> ResidentImages | StreamedImages:
        """Images of a split, resident (read by `load`) or streamed as `data.resident_mb` says."""
        data, limit = self.config.data, self.config.data.resident_mb * 1e6
        return open_images(dataset, name, positions, image_size=data.image_size, resident_bytes=limit, load=load)

    def test_images(self, dataset: Dataset) -> ResidentImages | StreamedImages:
        """The test split; only `evaluate` may call this."""
        return self.images(dataset, "test", np.arange(dataset.manifest.splits["test"].count))

    def model(self, num_classes: int, seed: int, state: State | None = None) -> nn.Module:
        """The configured network, freshly initialised or with the weights given."""
        settings = self.config.model
        model = build_model(
            settings.name, num_classes=num_classes, seed=seed, width=settings.width, classifier=settings.classifier
        )
        if state is not None:
            model.load_state_dict(state)
        return model

    def flops(self, model: nn.Module, shape: tuple[int, int, int]) -> tuple[int, int]:
        """FLOPs per image: (forward, forward + backward)."""
        return train_flops_per_image(model, shape)

    def standard_augment(self) -> Augment:
        """Crop and flip as configured under `data`."""
        data = self.config.data
        return StandardAugment(padding=data.crop_padding, flip=data.flip, resized=data.crop == "resized")

    def jigsaw_augment(self) -> Augment:
        """The augmentation of local training: RandAugment replaces shift and flip, but follows RandomResizedCrop."""
        settings = self.config.pretrain
        if settings.augment == "none":
            return no_augmentation
        standard = self.standard_augment()
        if settings.augment == "standard":
            return standard
        first = standard if self.config.data.crop == "resized" else None
        return RandAugment(num_ops=settings.num_ops, magnitude=settings.magnitude, first=first)
