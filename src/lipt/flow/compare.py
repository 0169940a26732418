"""`lipt run`: a run and its random baseline. `lipt compare`: all variants under several seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from lipt.config import Train
from lipt.flow.checks.validation import check_comparison, check_run
from lipt.flow.dag import run, score_and_select, train_and_evaluate, trains_models, with_config
from lipt.flow.outcome import Outcome
from lipt.flow.prepared import Prepared
from lipt.flow.reporting.report import write_report
from lipt.flow.reporting.rows import Entry, costs_of, label_of, rows_of
from lipt.flow.variants import Variant, baseline_of
from lipt.pipeline import Engine
from lipt.progress import Reporter
from lipt.report.document import Document, Row
from lipt.report.names import LONGER
from lipt.runtime.budgets import fuller_steps
from lipt.runtime.context import Context
from lipt.runtime.lease import at_work


def run_with_baseline(ctx: Context) -> Document | None:
    """Run the configuration and its baseline (`train.random_baseline`), and write the report.

    Returns None on a dry run.
    """
    check_run(ctx)
    if ctx.dry_run:
        run_baseline(ctx, run(ctx))
        return None
    with at_work(ctx.workspace.store):
        selected = run(ctx)
        return write_report(ctx, run_entries(selected, run_baseline(ctx, selected)))


def run_baseline(ctx: Context, selected: Outcome) -> tuple[Variant, Outcome] | None:
    """The baseline of a run (`train.random_baseline`) and its outcome; None if the run has none.

    If its training needs a model, it takes that of the run. Nothing is prepared again: if a lost model or jigsaw
    arrived now, the baseline could start from another one.
    """
    baseline = baseline_of(selected.config)
    if baseline is None:
        return None
    other = with_config(replace(ctx, config=selected.config), baseline.changes)
    bare = Prepared(dataset=selected.prepared.dataset)
    with scope(ctx.reporter, baseline.name):
        subset = score_and_select(other, bare, None)  # a random one, which needs no model
        if not trains_models(other.config):
            return baseline, train_and_evaluate(other, bare, subset)
        jigsaws, failures = selected.jigsaws, selected.failures
        prepared, merged = selected.prepared, selected.merged
        return baseline, train_and_evaluate(other, prepared, subset, merged, jigsaws=jigsaws, failures=failures)


def run_entries(selected: Outcome, beside: tuple[Variant, Outcome] | None) -> list[Entry]:
    """The rows of a plain run's report."""
    entries = [Entry(name="selected", label=label_of(selected), role="selected", outcomes=(selected,))]
    if beside:
        baseline, outcome = beside
        entries.append(Entry.of(baseline, [outcome]))
    return entries


def run_comparison(ctx: Context, *, engine: Engine = "local") -> Document:
    """Run every variant under every seed, and write the report. Variants share artifacts with equal keys.

    Raises:
        LiptError: a variant is unknown or invalid; see `check_comparison`.
    """
    variants = check_comparison(ctx)
    with at_work(ctx.workspace.store):
        return write_report(ctx, run_variants(ctx, variants), engine=engine, comparison=True)


def run_variants(ctx: Context, variants: Sequence[Variant]) -> list[Entry]:
    """Run these variants under every seed; `lipt` is one of them.

    On a dry run, `random-longer` lacks the seeds whose choice was not made yet: its number of steps is unknown.
    """
    entries: dict[str, Entry] = {}
    for variant in sorted(variants, key=lambda each: each.name == LONGER):  # last: it needs the cost of the choice
        outcomes = []
        for number, seed in enumerate(ctx.config.compare.seeds):
            changes = variant.changes | {"seed": seed}
            if variant.name == LONGER:
                chosen = entries["lipt"].outcomes[number]
                if not all(artifact.is_finished for artifact in chosen.artifacts()):
                    continue
                subset = chosen.subset.summary
                (row,) = rows_of([alone := Entry.of(variant, [chosen])], costs_of(ctx, [alone]))
                steps = longer_steps(row, chosen.config.train, candidates=subset["candidates"], kept=subset["count"])
                changes |= {"train": changes["train"] | {"steps": steps}}
            ctx.reporter.say(f"-- {variant.name}, seed {seed}")
            with scope(ctx.reporter, f"{variant.name}/seed {seed}"):
                outcomes.append(run(with_config(ctx, changes)))
        entries[variant.name] = Entry.of(variant, outcomes)
    return [entries[variant.name] for variant in variants]


@contextmanager
def scope(reporter: Reporter, name: str) -> Iterator[None]:
    """Tell the figures of one run from those of the others."""
    outer = reporter.scope
    reporter.scope = f"{outer}/{name}" if outer else name
    try:
        yield
    finally:
        reporter.scope = outer


def longer_steps(row: Row, settings: Train, *, candidates: int, kept: int) -> int:
    """The steps of uniform draws that take as many FLOPs as the main training of a run and its choice.

    Args:
        row: of that run, under one seed.
        settings: of its main training.
    """
    assert row.steps
    assert row.images
    assert row.train_flops
    fuller = fuller_steps(settings, candidates, kept, row.images / row.steps)
    return round(fuller * row.steps * (1 + (row.choice_flops or 0) / row.train_flops))
