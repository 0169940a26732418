"""The comparison that would tell more than a verdict can: its seeds and variants, and the command that runs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from shlex import quote
from typing import Self

from lipt.report.document import Row
from lipt.report.rivals import judges_of_price
from lipt.report.significance import Difference

#: `significance.MIN_SEEDS` show only large differences.
ENOUGH_SEEDS = 5
#: In place of the configuration's path, where it is not known.
PLACEHOLDER = "CONFIG"


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """A run of `lipt compare` with the configuration of the judged run."""

    seeds: tuple[int, ...]
    variants: tuple[str, ...]

    @classmethod
    def after(cls, row: Row, random: Row, delta: Difference) -> Self:
        """Five seeds, or twice as many if there are five; seeds that were run are among them, for they are reused."""
        known = delta.num_seeds
        wanted = max(len(row.seeds), ENOUGH_SEEDS if known < ENOUGH_SEEDS else 2 * known)
        others = (seed for seed in count() if seed not in row.seeds)
        seeds = sorted([*row.seeds, *(next(others) for _ in range(wanted - len(row.seeds)))])
        return cls(seeds=tuple(seeds), variants=("lipt", random.name, *judges_of_price(row, random)))

    @classmethod
    def joined(cls, steps: Sequence[Self]) -> Self | None:
        """One comparison that answers for all runs; None without a step."""
        if not steps:
            return None
        return cls(
            seeds=tuple(sorted({seed for step in steps for seed in step.seeds})),
            variants=tuple(dict.fromkeys(name for step in steps for name in step.variants)),
        )

    @property
    def sentence(self) -> str:
        """What the command does."""
        return f"To find out, compare over {len(self.seeds)} seeds, with the other settings unchanged:"

    def command(self, config: str = PLACEHOLDER, overrides: Sequence[str] = ()) -> str:
        """The command, a line per option, so that a terminal of 80 columns need not break one.

        Args:
            config: path of the configuration.
            overrides: the values of `--set` with which it was run.
        """
        changes = {"compare.seeds": self.seeds, "compare.variants": self.variants}
        kept = [text for text in overrides if text.partition("=")[0].strip() not in changes]
        settings = [*kept, *(f"{name}=[{','.join(map(str, values))}]" for name, values in changes.items())]
        return " \\\n".join([f"lipt compare {quote(config)}", *(f"  --set {quote(text)}" for text in settings)])
