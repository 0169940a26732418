"""Labels, budgets and lengths of rows as the verdict writes them."""

from collections.abc import Sequence

from lipt.report.document import Row
from lipt.report.numbers import format_budget, format_count, format_trained, format_whole
from lipt.report.significance import Difference, common_seeds


def short(row: Row) -> str:
    """The label without its explanation, with its run: `RS2 [RUN]` of `RS2: fresh random draw every epoch [RUN]`."""
    label, bracket, run = row.label.partition(" [")
    return label.partition(":")[0] + bracket + run


def inside(row: Row) -> str:
    """The name of a random row inside a sentence, as a common noun: `class-balanced random`."""
    name = short(row)
    return name[:1].lower() + name[1:] if name[1:2].islower() else name  # not of RS2


def run_of(row: Row) -> str:
    """The name of the run in a label, `RUN` of `LiPT [RUN]`; without one, the label."""
    return row.label.partition(" [")[2].removesuffix("]") or row.label


def too_few(delta: Difference) -> str:
    """ "one seed is", to be followed by "not enough"."""
    return {0: "no common seed is", 1: "one seed is"}.get(delta.num_seeds, f"{delta.num_seeds} seeds are")


def shares(row: Row) -> str:
    """The two budgets, or one if they are equal."""
    kept, per_epoch = format_budget(row.kept_fraction), format_trained(row.epoch_fraction, row.draw)
    return f"{kept} of the data" + (f" kept, {per_epoch} trained on per epoch" if kept != per_epoch else "")


def steps_of(row: Row) -> str:
    """The steps of the main training, or its epochs where the steps are unknown."""
    return format_count(row.epochs, "epoch") if row.steps is None else format_count(round(row.steps), "step")


def length(row: Row) -> str:
    """Epochs, steps and images of the main training."""
    if row.steps is None:
        return format_count(row.epochs, "epoch")
    return f"{format_count(row.epochs, 'epoch')} ({steps_of(row)}, {format_whole(row.images)} images)"


def of_seeds(row: Row, other: Row) -> str:
    """ " (seed 0)", if the compared means leave out seeds of a row: the means in the tables are others."""
    seeds = common_seeds(row, other)
    if not seeds or len(seeds) == len(row.seeds) == len(other.seeds):
        return ""
    return f" ({'seed' if len(seeds) == 1 else 'seeds'} {join([str(seed) for seed in seeds])})"


def join(parts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
