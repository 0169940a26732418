"""The files of a run are those that docs/reference/formats.md describes; read without LiPT's own readers."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import zstandard
from safetensors.torch import load, load_file

import lipt
from lipt import __version__
from lipt.pipeline import STAGE_NAMES
from lipt.training.tensor_files import decode_delta
from tests.docs.pages import ROOT
from tests.tiny import TINY

PAGE = (ROOT / "docs/reference/formats.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    lipt.run(TINY | {"workspace": str(folder), "train": {"epochs": 1, "batch_size": 32}})
    return folder


def rows(heading: str) -> dict[str, str]:
    """First and second column of the table below a heading, by the code in the first."""
    table = PAGE.split(f"{heading}\n", 1)[1].split("\n## ")[0].split("\n### ")[0]
    found: dict[str, str] = {}
    for first, second in re.findall(r"^\| (.+?) \| (.+?) \|", table, re.MULTILINE):
        found |= dict.fromkeys(re.findall(r"`([^`]+)`", first), second)
    return found


def canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def only(workspace: Path, pattern: str) -> Path:
    return sorted(workspace.glob(pattern))[0]


def test_every_stage_writes_the_files_of_the_table(workspace: Path) -> None:
    documented = rows("## Artifacts")
    artifacts = sorted(workspace.glob("*/*/artifact.json"))
    stages = {path.parts[-3] for path in artifacts}
    assert stages == set(documented) - {"group", "race"}  # they need merge.groups and select.race
    assert set(documented) == {*STAGE_NAMES, "chunks"}
    for path in artifacts:
        names = re.findall(r"`([^`]+)`", documented[path.parts[-3]])
        allowed = [re.escape(name).replace("NNNNN", r"\d{5}").replace(r"N\.", r"\d+\.") for name in names]
        for name in json.loads(path.read_text())["files"]:
            assert any(re.fullmatch(pattern, name) for pattern in allowed), (path, name)


def test_addresses_and_digests(workspace: Path) -> None:
    for path in workspace.glob("*/*/artifact.json"):
        document = json.loads(path.read_bytes())
        assert path.read_bytes() == canonical(document)
        assert (
            hashlib.sha256(canonical({k: v for k, v in document.items() if k != "digest"})).hexdigest()
            == (document["digest"])
        )
        address = {name: document[name] for name in ("inputs", "settings", "stage")} | {"version": __version__}
        assert hashlib.sha256(canonical(address)).hexdigest()[:16] == document["key"] == path.parts[-2]
        for name, file in document["files"].items():
            if not name.endswith("/"):
                data = (path.parent / name).read_bytes()
                assert (len(data), hashlib.sha256(data).hexdigest()) == (file["num_bytes"], file["sha256"])


def test_a_chunk_by_its_index(workspace: Path) -> None:
    store = only(workspace, "chunks/*/store")
    assert all(f"`{name}`" in PAGE for name in pq.read_schema(store / "train.index.parquet").names)
    row = pq.read_table(store / "train.index.parquet").slice(5, 1).to_pylist()[0]
    chunk = (store / f"train-{row['chunk']:05d}.tar").read_bytes()
    span = chunk[row["offset"] : row["offset"] + row["size"]]
    assert zlib.crc32(span) == row["crc32"]
    with tarfile.open(fileobj=io.BytesIO(span + bytes(1024))) as members:
        image, label = members.getmembers()
        assert (image.name, label.name) == ("00000005.png", "00000005.cls")
        text = members.extractfile(label)
        assert text is not None
        assert int(text.read()) == row["label"]


def test_a_trajectory(workspace: Path) -> None:
    candidates = len(pq.read_table(only(workspace, "select/*/subset.parquet")))
    for name, tensor in load_file(only(workspace, "initialise/*/dynamics.safetensors")).items():
        assert name in rows("### Trajectories: `dynamics.safetensors`")
        assert (tensor.dtype, tensor.shape) == (torch.float32, (candidates, 1))


def test_a_jigsaw(workspace: Path) -> None:
    star = load_file(only(workspace, "initialise/*/weights.safetensors"))
    data = only(workspace, "pretrain/*/delta.zst").read_bytes()
    expected = decode_delta(data, star, origin="delta.zst")
    parts = load(zstandard.ZstdDecompressor().decompress(data))
    for name, base in star.items():
        if f"full/{name}" in parts:
            assert parts[f"full/{name}"].equal(expected[name])
            continue
        zero = np.unpackbits(parts[f"zero/{name}"].numpy())[: base.numel()].astype(bool)
        low, high = parts[f"delta/{name}"].numpy().astype(np.uint32)
        difference = ((high << 24) | (low << 16)).view(np.float32)  # a bf16 is the upper half of a float32
        weights = np.zeros(base.numel(), np.float32)
        weights[~zero] = base.numpy().flatten()[~zero] + difference
        assert torch.from_numpy(weights).view_as(base).equal(expected[name])


def test_scores_and_subset(workspace: Path) -> None:
    score = only(workspace, "score/*")
    documented = rows("### Scores: `outputs-N.safetensors`, `labels.safetensors`")
    assert set(load_file(score / "outputs-0.safetensors")) == {"features", "logits"} <= set(documented)
    table = pq.read_table(only(workspace, "select/*/subset.parquet"))
    assert {field.name: str(field.type).replace("float", "float32") for field in table.schema} == rows(
        "### `subset.parquet`"
    )
    assert table["label"].to_pylist() == load_file(score / "labels.safetensors")["labels"].tolist()
    positions = table["position"].to_pylist()
    assert all((after - before) % 1438 == 1 for before, after in pairwise(positions))  # from the validation images on
    provenance = json.loads(table.schema.metadata[b"lipt"])
    assert all(f"`{name}`" in PAGE for name in provenance)


def test_costs(workspace: Path) -> None:
    cost = json.loads(only(workspace, "train/*/cost.json").read_text())
    assert all(f"`{name}`" in PAGE for name in [*cost, *cost["read"]])
