"""A whole run on a real object store gives what a run in a folder gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lipt.adapters.store import DatasetFiles, open_store
from lipt.config import parse_config
from lipt.flow.address import report_folder
from lipt.flow.compare import run_with_baseline
from lipt.flow.export import export
from lipt.flow.export_network import export_network
from lipt.report.document import Document
from lipt.runtime.context import Cache
from lipt.runtime.workspace import Workspace
from tests.tiny import digests, tiny_context, write_store


def test_the_same_artifacts_in_a_bucket_and_in_a_folder(s3: str, tmp_path: Path) -> None:
    in_bucket, in_folder = tiny_context(f"{s3}/runs"), tiny_context(tmp_path)
    document = run_with_baseline(in_bucket)
    run_with_baseline(in_folder)
    assert document is not None
    assert digests(in_bucket.workspace) == digests(in_folder.workspace)
    stored = in_bucket.workspace.store.read(f"{report_folder(in_bucket.config)}/report.json", kind="other")
    assert Document.model_validate_json(stored) == document
    resumed = tiny_context(f"{s3}/runs")
    run_with_baseline(resumed)
    assert len(resumed.workspace.reused) == len(digests(in_bucket.workspace))
    exported, networks = {}, []
    for ctx in (resumed, in_folder):  # the selected images and the network, fetched from the bucket
        target = tmp_path / f"{len(exported)}.tar"
        assert export(ctx, document, str(target), "tar").count == document.subset.count  # type: ignore[union-attr]
        exported[target.name] = target.read_bytes()
        networks.append(export_network(ctx, document, str(target.with_suffix(".pt2"))))
    assert exported["0.tar"] == exported["1.tar"] != b""
    assert networks[0] == networks[1]
    assert networks[0].test_accuracy == document.rows[0].accuracy[0]


def test_a_data_set_ingested_once_serves_other_workspaces(s3: str, tmp_path: Path) -> None:
    data = parse_config({"data": {"source": "digits", "chunk_mb": 0.5, "thumbnails": 5}}).data
    write_store(data, open_store(f"{s3}/digits"))
    context = tiny_context(tmp_path, {"data": {"source": f"{s3}/digits"}, "train": {"epochs": 1}})
    document = run_with_baseline(context)
    assert document is not None
    ingested = next(row for row in document.ledger if row.stage == "ingest")
    assert ingested.data_written == 0
    worker = next(row for row in document.ledger if row.stage == "pretrain")
    assert worker.data_read > 0
    proxied = {"data": {"source": f"{s3}/digits", "thumbnails": 5}, "score": {"proxy": {"width": 2, "image_size": 5}}}
    document = run_with_baseline(tiny_context(tmp_path, proxied | {"train": {"epochs": 1}}))
    assert document is not None
    small = next(row for row in document.ledger if row.stage == "pretrain")
    assert 0 < small.data_read < worker.data_read / 10  # thumbnails
    assert DatasetFiles(open_store(f"{s3}/digits")).get("manifest.json") is not None


def test_a_cluster_s_run_is_exported_without_credentials_in_the_environment(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lipt export HANDLE` has them from the cluster, for the workspace. The data set may lie in another prefix."""
    data = parse_config({"data": {"source": "digits", "chunk_mb": 0.5}}).data
    write_store(data, open_store(f"{s3}/digits"))
    changes = {"data": {"source": f"{s3}/digits"}, "select": {"algorithm": "random"}, "train": {"epochs": 1}}
    ctx = tiny_context(f"{s3}/exported", changes)
    document = run_with_baseline(ctx)
    assert document is not None
    reader = replace(ctx, workspace=Workspace(open_store(f"{s3}/exported")), cache=Cache())
    for name in ("LIPT_S3_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert export(reader, document, str(tmp_path / "images.tar"), "tar").count == document.subset.count  # type: ignore[union-attr]
