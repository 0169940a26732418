"""The outputs that an engine's run page shows: a few figures, the confusion matrix, the verdict and the report."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from lipt.report.document import Document
from lipt.report.verdict import judge
from lipt.runtime.artifact import Artifact


def merge_figures(theta: Artifact | None) -> dict[str, float]:
    """Validation accuracies of theta_p and of the models it is compared with; jigsaws arrived and missing."""
    if theta is None:
        return {}
    names = {
        "accuracy": "soup",
        "theta_star_accuracy": "theta_star",
        "best_single_accuracy": "best_single",
        "uniform_accuracy": "uniform",
    }
    figures = {
        f"{name}_validation_accuracy": theta.summary[key]
        for key, name in names.items()
        if theta.summary[key] is not None
    }
    return {
        **figures,
        "jigsaws_arrived": len(theta.summary["densities"]),
        "jigsaws_missing": len(theta.summary["missing"]),
    }


@dataclass(frozen=True, kw_only=True)
class RunOutputs:
    """The outputs of the box that ends a run."""

    document: Document
    workspace: str
    model: str = ""
    """Reference of the trained model."""
    confusion: list[list[int]] | None = None
    """Test images by true class (rows) and predicted class (columns); None if there are too many classes."""

    @property
    def html(self) -> str:
        """The report, for the engine's page."""
        from lipt.report.html_page import render

        return render(self.document, framed=True)

    @property
    def location(self) -> str:
        """The address of the report."""
        from lipt.flow.address import PAGE, folder_of

        return f"{self.workspace}/{folder_of(self.document)}/{PAGE}"

    @property
    def markdown(self) -> str:
        """The verdict, its next step and the address of the report."""
        verdict = judge(self.document.rows)
        # Paragraphs that begin with a bullet: Kubeflow's UI shows the items of a list without one.
        sentences = "".join(f"• {sentence}\n\n" for sentence in verdict.sentences)
        step = verdict.next_step
        command = f"{step.sentence}\n\n```bash\n{step.commands({})[0]}\n```\n\n" if step else ""
        return f"**{verdict.headline}**\n\n{sentences}{command}Report: `{self.location}`\n"

    @property
    def classes(self) -> list[str]:
        """Class names, in label order."""
        return self.document.subset.class_names if self.document.subset else []

    def figures(self) -> dict[str, float]:
        """The figures of the selected row. For each other row, its accuracy and the selected row's gain over it.

        Kubeflow shows ten before one has to turn the page: as many as a run with one seed and one other row has.
        """
        rows = self.document.rows
        row = next(row for row in rows if row.role == "selected")
        accuracy = fmean(row.accuracy)
        figures = {
            "accuracy": accuracy,
            "kept_fraction": row.kept_fraction,
            "epoch_fraction": row.epoch_fraction,
            "steps": row.steps or 0,
            "wall_s": sum(row.stage_wall_s.values()),
            "data_mb": (row.data_bytes or 0) / 1e6,
            "model_mb": (row.model_bytes or 0) / 1e6,
            "gflop": (row.flops or 0) / 1e9,
        }
        if len(row.seeds) > 1:
            figures["seeds"] = len(row.seeds)
        for other in rows:
            if other is not row:
                name = other.name.replace("-", "_")
                figures |= {
                    f"{name}_accuracy": fmean(other.accuracy),
                    f"gain_over_{name}": accuracy - fmean(other.accuracy),
                }
        return figures
