"""Compile every pipeline into YAML in this folder, and write Argo's WorkflowTemplate into `manifests/`."""

from __future__ import annotations

from pathlib import Path

import yaml
from kfp import compiler

from pipelines.argo import workflow_template
from pipelines.compare_pipeline import lipt_compare
from pipelines.ingest_pipeline import lipt_ingest
from pipelines.lipt_pipeline import lipt

PIPELINES = {"lipt.yaml": lipt, "ingest.yaml": lipt_ingest, "compare.yaml": lipt_compare}
#: Relative to the root of the repository.
WORKFLOW_TEMPLATE = "manifests/base/workflowtemplate.yaml"
_HEADER = "# Generated from pipelines/argo.py by `make pipelines`; a test compares it with the Kubeflow pipeline.\n"


class _Plain(yaml.SafeDumper):
    """Writes YAML without anchors and aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def compile_all(root: Path) -> None:
    """Write all files below `root`."""
    for name, pipeline in PIPELINES.items():
        compiler.Compiler().compile(pipeline, str(root / "pipelines" / name))
    text = yaml.dump(workflow_template(), Dumper=_Plain, sort_keys=False, width=120)
    (root / WORKFLOW_TEMPLATE).write_text(_HEADER + text, encoding="utf-8")


if __name__ == "__main__":
    compile_all(Path(__file__).parents[1])
