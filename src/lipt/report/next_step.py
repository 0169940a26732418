"""The comparison that would tell more than a verdict can: its seeds and variants, and the command that runs it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from shlex import quote
from typing import Self

from lipt.report.document import NETWORK_CODE, Document, Row
from lipt.report.names import FIXED, LONGER
from lipt.report.price import judges_of_price
from lipt.report.side_by_side import settings_of
from lipt.report.significance import Difference
from lipt.report.words import join

#: `significance.MIN_SEEDS` show only large differences.
ENOUGH_SEEDS = 5
#: In place of the configuration's path, where it is not known.
PLACEHOLDER = "CONFIG"
#: The choice with which a random subset is compared. It needs one model and no shards, for which a small data set may
#: have too few images. The numbers are named because a configuration with all settings has those of `merged`.
_A_CHOICE = {
    "select.algorithm": "ccs",
    "score.model": "trajectory",
    "score.runs": "1",
    "score.disjoint": "false",
    "score.epochs": "10",
}


@dataclass(frozen=True)
class Origin:
    """How a command names the configuration of a run."""

    config: str = PLACEHOLDER
    """Its path."""
    overrides: Sequence[str] = ()
    """The values of `--set` with which it was run."""
    identity: Mapping[str, str] = field(default_factory=dict, compare=False)
    """What makes its results, as `identity_of` gives it; empty if unknown."""
    module: str = ""
    """What Python must find where the command is run: the module of a network of the user's own."""

    @classmethod
    def stored(cls, document: Document, workspace: str) -> Self:
        """The configuration beside a report; it has all settings, and names local images by an absolute path. In an
        object store no command can read it.

        Args:
            workspace: address of the one that holds the report.
        """
        key = next((link.key for link in document.links if link.key.endswith("/config.yaml")), None)
        identity = identity_of(document)
        if key is None or not workspace.startswith("file://"):
            return cls(identity=identity)
        folder = workspace.removeprefix("file://")
        # What the file calls the workspace may be relative to the folder in which the run was started.
        return cls(f"{folder}/{key}", (f"workspace={folder}",), identity, module_of(identity.get("model.name", "")))


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """A run of `lipt compare` with the configuration of the judged run, or of each of several."""

    seeds: tuple[int, ...]
    variants: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that differ from those of the judged run."""
    runs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Side by side: name of each run that it is about -> its variants. One run may lack a variant of another."""

    @classmethod
    def after(cls, row: Row, random: Row, delta: Difference) -> Self:
        """Five seeds, or twice as many if there are five."""
        known = delta.num_seeds
        wanted = max(len(row.seeds), ENOUGH_SEEDS if known < ENOUGH_SEEDS else 2 * known)
        beside = random.algorithm if random.name == FIXED else random.name  # no variant is called so
        variants = ("lipt", beside, *judges_of_price(row))
        return cls(seeds=_with_more(row.seeds, wanted), variants=variants, runs=dict.fromkeys(row.runs, variants))

    @classmethod
    def after_random(cls, row: Row) -> Self | None:
        """The comparison of a random subset with a chosen one; None if the choice was left to `auto` or a race, which
        had a reason for it, or if the training is about something else than the subset."""
        if row.reason or row.kept_fraction == 1 or row.draw != "uniform":
            return None
        variants = ("lipt", row.algorithm, LONGER)
        return cls(
            seeds=_with_more(row.seeds, max(len(row.seeds), ENOUGH_SEEDS)),
            variants=variants,
            settings=_A_CHOICE,
            runs=dict.fromkeys(row.runs, variants),
        )

    @classmethod
    def joined(cls, steps: Sequence[Self]) -> Self | None:
        """One comparison that answers for all runs; None without a step. Beside a chosen subset, a random one needs
        no choice to be compared with."""
        told = [step for step in steps if not step.settings] or steps
        if not told:
            return None
        return cls(
            seeds=tuple(sorted({seed for step in told for seed in step.seeds})),
            variants=tuple(dict.fromkeys(name for step in told for name in step.variants)),
            settings=told[0].settings,
            runs={run: variants for step in told for run, variants in step.runs.items()},
        )

    @property
    def sentence(self) -> str:
        """What the command does."""
        return self.introduction({})

    def introduction(self, origins: Mapping[str, Origin]) -> str:
        """What the commands do, and where they can be run if not everywhere.

        Args:
            origins: as for `commands`.
        """
        purpose = "To see whether chosen images are better than random ones" if self.settings else "To find out"
        runs = f" {join([*self.runs])}" if self.runs else ""
        whose = {0: "with the", 1: "with its"}.get(len(self.runs), "each with its")
        text = f"{purpose}, compare{runs} over {len(self.seeds)} seeds, {whose} other settings unchanged"
        compared = self._compared(origins)
        if len(compared) < len(self.runs):
            text += ". Runs whose other settings are equal need one command"
        if modules := dict.fromkeys(origin.module for origin, _ in compared if origin.module):
            text += f". Start it in a folder where Python finds the module {join([*modules])}"
        return f"{text}:"

    def commands(self, origins: Mapping[str, Origin]) -> list[str]:
        """The command for each run, or for several with equal settings.

        Args:
            origins: run -> its configuration. It has one entry if there is only one run.
        """
        return [self._command(origin, variants) for origin, variants in self._compared(origins)]

    def _compared(self, origins: Mapping[str, Origin]) -> list[tuple[Origin, Sequence[str]]]:
        """The configurations to compare, each with its variants. Of those that differ only in what the command sets,
        one is enough, with the variants of all."""
        if not self.runs:
            return [(next(iter(origins.values()), Origin()), self.variants)]
        found: dict[object, tuple[Origin, Sequence[str]]] = {}
        for run, variants in self.runs.items():
            origin = origins.get(run, Origin())
            kept = {name: value for name, value in origin.identity.items() if name not in self._changed}
            first, others = found.get(same := tuple(sorted(kept.items())) or run, (origin, ()))
            found[same] = first, tuple(dict.fromkeys([*others, *variants]))
        return [*found.values()]

    @property
    def _changed(self) -> set[str]:
        """The settings on which the command does not take those of the judged run."""
        return {*self.settings, "compare.seeds", "compare.variants", "seed"}

    def _command(self, origin: Origin, variants: Sequence[str]) -> str:
        """The command, a line per option, so that a terminal of 80 columns need not break one."""
        lists = {"compare.seeds": self.seeds, "compare.variants": variants}
        changes = {**self.settings, **{name: f"[{','.join(map(str, values))}]" for name, values in lists.items()}}
        kept = [text for text in origin.overrides if text.partition("=")[0].strip() not in self._changed]
        settings = [*kept, *(f"{name}={value}" for name, value in changes.items())]
        return " \\\n".join([f"lipt compare {quote(origin.config)}", *(f"  --set {quote(text)}" for text in settings)])


def identity_of(document: Document) -> dict[str, str]:
    """All settings of a run, and the digests of its data set and of the code of a network of the user's own."""
    digests = document.provenance.digests
    return settings_of(document) | {name: digests[name] for name in ("dataset", NETWORK_CODE) if name in digests}


def module_of(network: str) -> str:
    """The module of a network of the user's own; "" for one of LiPT.

    Args:
        network: `model.name`.
    """
    module, own, _ = network.partition(":")
    return module if own else ""


def _with_more(seeds: Sequence[int], wanted: int) -> tuple[int, ...]:
    """So many seeds; those that were run are among them, for they are reused."""
    others = (seed for seed in count() if seed not in seeds)
    return tuple(sorted([*seeds, *(next(others) for _ in range(wanted - len(seeds)))]))
