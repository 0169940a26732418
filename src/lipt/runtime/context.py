"""The context of a stage: configuration, workspace, device, reporter and cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lipt.config import Config
from lipt.errors import UsageError
from lipt.progress import Reporter
from lipt.rng import derive
from lipt.runtime.artifact import Artifact, thumbnails_ref
from lipt.runtime.workspace import Workspace
from lipt.training.user_model import code_digest

if TYPE_CHECKING:
    import torch

    from lipt.data.chunks import Dataset
    from lipt.data.sources import Listing
    from lipt.training.precision import Precision
    from lipt.training.tensor_files import State

#: (context, request, number of pods) -> result, as of `runtime.processes.child.run_stage`; None if the nodes have no
#: room for the pods.
InPods = Callable[["Context", dict[str, Any], int], dict[str, Any] | None]


@dataclass(kw_only=True)
class Cache:
    """Data that a process keeps between stages."""

    weights: dict[str, State] = field(default_factory=dict)
    """The weights read last: a process that trains several jigsaws fetches theta_* once."""
    listings: dict[tuple[str, str], Listing] = field(default_factory=dict)
    """Classes and counts of the data source, so that a comparison looks at its files once."""
    datasets: dict[str, Dataset] = field(default_factory=dict)
    """The data set opened last: a process fetches its manifest and its index once."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """One configuration on one workspace."""

    config: Config
    workspace: Workspace
    reporter: Reporter
    dry_run: bool = False
    shared: Path | None = None
    """A folder that several processes of one stage share: one of them reads their inputs for all."""
    cache: Cache = field(default_factory=Cache, repr=False, compare=False)
    pods: InPods | None = field(default=None, repr=False, compare=False)
    """On a cluster: runs a stage in pods that share each batch."""
    waits: bool = False
    """On a cluster: this box has no GPU, because it starts pods with GPUs for its trainings and waits for them."""
    codes: dict[str, str | None] = field(default_factory=dict, repr=False, compare=False)
    """Digests of the files of users' networks, by `model.name`, as they were when this run first needed them."""

    @classmethod
    def of(
        cls,
        config: Config,
        reporter: Reporter | None = None,
        *,
        dry_run: bool = False,
        pods: InPods | None = None,
        waits: bool = False,
    ) -> Context:
        """A configuration on its workspace. Without a reporter, progress goes to stderr line by line."""
        return cls(
            config=config,
            workspace=Workspace(config.workspace),
            reporter=reporter or Reporter(),
            dry_run=dry_run,
            pods=pods,
            waits=waits,
        )

    @cached_property
    def device(self) -> torch.device:
        """The configured device.

        Raises:
            UsageError: `cuda` is configured, but torch sees no GPU.
        """
        import torch  # here: a box that only waits for its pods uses no device

        name = "cpu" if self.waits else self.config.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        if name == "cuda" and not torch.cuda.is_available():
            raise UsageError("device: cuda was asked for, torch sees no GPU", "set device: auto, or check the driver")
        return torch.device(name)

    @cached_property
    def machine(self) -> str:
        """GPU, if it is used, and threads of this process, such as `NVIDIA H100, 8 CPU threads`."""
        import torch  # as above

        gpu = f"{torch.cuda.get_device_name()}, " if self.device.type == "cuda" else ""
        threads = torch.get_num_threads()
        return f"{gpu}{threads} CPU thread{'s' * (threads != 1)}"

    @cached_property
    def precision(self) -> Precision:
        """The configured precision; `auto` means the one that the device computes natively."""
        from lipt.training.precision import native_precision  # here: imports torch

        return native_precision(self.device) if self.config.precision == "auto" else self.config.precision

    def of_scorer(self) -> Context:
        """The context of the stages up to the scores, with `score.proxy` in place of the trained network."""
        config = self.config.of_scorer()
        return self if config is self.config else replace(self, config=config)

    def data_of_scorer(self, dataset: Artifact) -> Artifact:
        """The data set that the stages up to the scores read: the thumbnails, if there are any for `score.proxy`."""
        side = self.config.thumbnails_to_score
        if side is None or not dataset.summary:  # no summary: a dry run on data that were never ingested
            return dataset
        return self.artifact(thumbnails_ref(dataset, side))

    def seed(self, *names: str | int) -> int:
        """The seed of a stage."""
        return derive(self.config.seed, *names)

    @property
    def code(self) -> str | None:
        """The digest of the file that defines the network; None if it is one of LiPT's, or is not here."""
        name = self.config.model.name
        if ":" in name and name not in self.codes:
            self.codes[name] = code_digest(name)
        return self.codes.get(name)

    def settings(self, *sections: str, seeded: bool = True, **more: Any) -> dict[str, Any]:
        """Those sections of the configuration as a stage's settings; `seeded` adds the run's seed."""
        chosen: dict[str, Any] = {
            section: getattr(self.config, section).model_dump(mode="json") for section in sections
        }
        if "model" in chosen and ":" in self.config.model.name:  # an edited network is another network
            chosen["model"]["code"] = self.code
        return chosen | ({"seed": self.config.seed} if seeded else {}) | more

    def view(self) -> dict[str, Any]:
        """The settings that determine which images a stage sees, and in which form."""
        data = self.config.data
        if data.crop == "resized":
            data = data.with_defaults("crop_padding")
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
