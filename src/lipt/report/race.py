"""What the accuracies of a race tell."""

from lipt.report.document import Document, RaceRow
from lipt.report.numbers import DASH
from lipt.report.significance import sampling_error


def round_headings(document: Document) -> list[str]:
    """ "5 % of the steps" for each round, with the digits of the setting, so that no two are the same."""
    return [f"{100 * share:.12g} % of the steps" for share in document.race_rounds]


def race_error(document: Document) -> str | None:
    """How much the accuracies of the race may be off; None without a race, or if the images were not counted."""
    if not (document.race and document.race_images):
        return None
    rounds = max(len(row.accuracies) for row in document.race)
    last = [row.accuracies[-1] for row in document.race if len(row.accuracies) == rounds]
    error = max(sampling_error(accuracy, document.race_images) for accuracy in last)
    return (
        f"Race: measured on {document.race_images:,} validation images, an accuracy of the last round has a 95 % error "
        f"of up to ±{100 * error:.2f} points. The winner may be ahead by chance."
    )


def race_result(row: RaceRow) -> str:
    """How a contestant ended."""
    return "won" if row.won else "diverged" if row.diverged else DASH
