"""What the accuracies of a race tell."""

from lipt.report.document import Document
from lipt.report.significance import sampling_error


def race_error(document: Document) -> str | None:
    """How much the accuracies of the race may be off; None without a race, or if the images were not counted."""
    if not (document.race and document.race_images):
        return None
    errors = [sampling_error(row.accuracies[-1], document.race_images) for row in document.race if row.accuracies]
    return (
        f"Race: measured on {document.race_images:,} validation images, each accuracy has a 95 % error of up to "
        f"±{100 * max(errors):.2f} points. The winner may be ahead by chance."
    )
