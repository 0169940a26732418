"""A sweep as pipeline runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.docs.pages import script
from tests.e2e.cluster import BUCKET, LIPT, NAMESPACE, SMALL, items, outcome, shell


def sweep(folder: Path, *options: str) -> Any:
    """What `lipt sweep` prints as JSON."""
    command = [LIPT, "sweep", "sweep.yaml", "-o", "json", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, timeout=420)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_sweep_runs_as_pipeline_runs(tmp_path: Path) -> None:
    """Of two points one is itself random, so two runs are enough. The same command finds them finished."""
    base = SMALL | {"name": "swept", "workspace": f"s3://{BUCKET}/swept"}
    base |= {"merge": {"method": "none"}, "compare": {"seeds": [0], "variants": ["stratified", "lipt"]}}
    document = {"base": base, "grid": {"select.algorithm": ["ccs", "stratified"]}}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(document))
    place = f"-n {NAMESPACE} -p cpu=200m -p memory=1Gi"
    words = {"s3://BUCKET/sweep": f"s3://{BUCKET}/swept", "-p gpus=1": place}
    told = shell(script("docs/howto/sweep.md", "lipt sweep sweep.yaml --engine", words), folder=tmp_path)
    assert "2 runs, of which 0 are finished" in told  # the dry run comes first
    workflows = started()
    assert len(workflows) == 2

    points = sweep(tmp_path, "--engine", "argo", *place.split())
    assert started() == workflows
    assert [point["point"]["select.algorithm"] for point in points] == ["ccs", "stratified"]
    (random, ours), (same, twin) = (point["rows"] for point in points)
    assert random == same
    assert random["accuracy"] == twin["accuracy"] != ours["accuracy"]
    assert (random["role"], ours["role"], twin["role"]) == ("random", "selected", "selected")
    assert len((tmp_path / "sweep.jsonl").read_text().splitlines()) == 2
    stages = [key.partition("/")[0] for key in outcome("swept")]
    assert (stages.count("initialise"), stages.count("select"), stages.count("train")) == (1, 2, 2)


def started() -> set[str]:
    """The names of the runs of the sweep."""
    names = [each["metadata"]["name"] for each in items("workflows", "app.kubernetes.io/name=lipt")]
    return {name for name in names if name.startswith("swept-")}
