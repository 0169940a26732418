"""Compile every pipeline to the YAML beside this file."""

from __future__ import annotations

from pathlib import Path

from kfp import compiler

from pipelines.compare_pipeline import lipt_compare
from pipelines.ingest_pipeline import lipt_ingest
from pipelines.lipt_pipeline import lipt

PIPELINES = {"lipt.yaml": lipt, "ingest.yaml": lipt_ingest, "compare.yaml": lipt_compare}


def compile_all(folder: Path) -> None:
    """Write the YAML of each pipeline into `folder`."""
    for name, pipeline in PIPELINES.items():
        compiler.Compiler().compile(pipeline, str(folder / name))


if __name__ == "__main__":
    compile_all(Path(__file__).parent)
